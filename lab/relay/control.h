/* The relay's orders: a line in, a line out. */
#ifndef RELAY_CONTROL_H
#define RELAY_CONTROL_H

#include "wires.h"

/* Obeys one line, which it takes to pieces, and writes the one line of the answer. Returns the
 * index of a wire that is new, else -1. */
int relay_obey(relay_wires *wires, char *line);

#endif
