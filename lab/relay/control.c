#include "control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ethernet.h"

#define WORDS_MAX 32

/* Words of an order behind the verb: a wire, one direction or both, then settings. */
typedef struct {
    char *words[WORDS_MAX];
    int count;
    int wire;
    uint32_t first, last; /* Directions. */
} order;

static void answer(const char *text)
{
    printf("%s\n", text);
}

static bool take_apart(char *line, order *made)
{
    made->count = 0;
    char *rest;
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        if (made->count == WORDS_MAX)
            return false;
        made->words[made->count++] = word;
    }
    return made->count > 0;
}

static bool find_directions(const relay_wires *wires, order *made)
{
    made->wire = made->count > 1 ? relay_wire_find(wires, made->words[1]) : -1;
    if (made->wire < 0) {
        answer("error there is no such wire");
        return false;
    }
    const char *which = made->count > 2 ? made->words[2] : "";
    bool is_both = strcmp(which, "both") == 0;
    bool is_backward = strcmp(which, "backward") == 0;
    if (!is_both && !is_backward && strcmp(which, "forward") != 0) {
        answer("error a direction is forward, backward or both");
        return false;
    }
    uint32_t base = 2 * (uint32_t)made->wire;
    made->first = base + (is_backward ? 1 : 0);
    made->last = base + (is_both || is_backward ? 1 : 0);
    return true;
}

/* New settings hold for what arrives from now on, and begin at the law's first frame if they name
 * a seed. One bad word, and nothing changes. */
static void set_faults(relay_wires *wires, const order *made)
{
    relay_faults faults[2];
    bool begins_anew = false;
    for (uint32_t at = made->first; at <= made->last; at++) {
        relay_faults *wanted = &faults[at - made->first];
        *wanted = wires->directions[at].law.faults;
        for (int word = 3; word + 1 < made->count; word += 2) {
            if (!relay_faults_set(wanted, made->words[word], made->words[word + 1])) {
                printf("error %s cannot be %s\n", made->words[word], made->words[word + 1]);
                return;
            }
            begins_anew = begins_anew || strcmp(made->words[word], "seed") == 0;
        }
        if (made->count % 2 == 0 || wanted->burst_min > wanted->burst_max) {
            answer("error settings are pairs of name and value, burst_min at most burst_max");
            return;
        }
    }
    for (uint32_t at = made->first; at <= made->last; at++) {
        relay_direction *direction = &wires->directions[at];
        if (begins_anew)
            relay_law_begin(&direction->law, &faults[at - made->first], at % 2);
        else
            direction->law.faults = faults[at - made->first];
    }
    answer("ok");
}

static void cut_or_heal(relay_wires *wires, const order *made, bool is_cut)
{
    for (uint32_t at = made->first; at <= made->last; at++)
        wires->directions[at].is_cut = is_cut;
    answer("ok");
}

static void tell_direction(relay_direction *direction)
{
    direction->counters[RELAY_KERNEL_DROPPED] += relay_device_dropped(direction->in);
    for (enum relay_counter counter = 0; counter < RELAY_COUNTERS; counter++)
        printf("\"%s\": %" PRIu64 ", ", relay_counter_name(counter), direction->counters[counter]);
    printf("\"waiting\": %" PRIu64 ", \"late_us_p50\": %.2f, \"late_us_p99\": %.2f",
           direction->waiting, relay_late_us(direction, 50), relay_late_us(direction, 99));
}

static void tell_counters(relay_wires *wires, const order *made)
{
    int wire = made->count == 2 ? relay_wire_find(wires, made->words[1]) : -1;
    if (wire < 0) {
        answer("error there is no such wire");
        return;
    }
    printf("{\"forward\": {");
    tell_direction(&wires->directions[2 * wire]);
    printf("}, \"backward\": {");
    tell_direction(&wires->directions[2 * wire + 1]);
    printf("}}\n");
}

static int add_wire(relay_wires *wires, const order *made)
{
    if (made->count != 4 || relay_wire_find(wires, made->words[1]) >= 0) {
        answer("error write: wire NAME DEVICE DEVICE, with a name not yet in use");
        return -1;
    }
    if (!relay_wire_add(wires, made->words[1], made->words[2], made->words[3])) {
        printf("error wire %s: %s\n", made->words[1], strerror(errno));
        return -1;
    }
    answer("ok");
    return (int)wires->wire_count - 1;
}

int relay_obey(relay_wires *wires, char *line)
{
    order made;
    if (!take_apart(line, &made)) {
        answer("error an order has one to 32 words");
        return -1;
    }
    const char *verb = made.words[0];
    if (strcmp(verb, "wire") == 0)
        return add_wire(wires, &made);
    if (strcmp(verb, "counters") == 0)
        tell_counters(wires, &made);
    else if (strcmp(verb, "set") != 0 && strcmp(verb, "cut") != 0 && strcmp(verb, "heal") != 0)
        answer("error the orders are wire, set, cut, heal and counters");
    else if (!find_directions(wires, &made))
        return -1;
    else if (strcmp(verb, "set") == 0)
        set_faults(wires, &made);
    else
        cut_or_heal(wires, &made, strcmp(verb, "cut") == 0);
    return -1;
}
