/* A publisher in plain C: it registers over mutual TLS 1.3 and sends events by UDP.
 *
 *   cc -std=c11 -O2 -o publish examples/publish.c -lssl -lcrypto -lm
 *   ./publish --edge c1/e0@127.0.0.1:7101 --name c1/north/pmu-c --certificates certificates
 *
 * Needs OpenSSL 1.1.1 or later with its headers (Debian: libssl-dev), and nothing of gridstat's. It
 * shows that everything on the wire can be made by hand:
 *
 *   session   TLS 1.3, both sides with certificates; frames of 8 bytes and MessagePack
 *   requests  signed with the certificate's Ed25519 key: Attach, Publish, Detach
 *   events    datagrams of 16 + 24 bytes (docs/reference/wire-format.md)
 *
 * It does not seal its datagrams, so its edge router refuses it unless its file has
 * `endpoint_security = "none"`.
 *
 * Ctrl-C leaves the cloud in order. One edge router is enough to show all this; a publisher that
 * may lose nothing attaches to two, with the same incarnation, and sends every event to both.
 */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <signal.h>

#include "edge_session.h"

static volatile sig_atomic_t is_stopped;

static void stop(int number)
{
    (void)number;
    is_stopped = 1;
}

static void heed_signals(void)
{
    /* An edge router that is gone is told by what we write to it, not by our death. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, leave_in_order = {.sa_handler = stop};
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGINT, &leave_in_order, NULL);
    sigaction(SIGTERM, &leave_in_order, NULL);
}

/* ---- What a publisher asks ---- */

static void attach(session *s, const options *o, const char *instance, X509 *certificate,
                   body *answer, words *attached)
{
    static body command;
    uint8_t *der = NULL;
    int der_bytes = i2d_X509(certificate, &der);
    if (der_bytes <= 0)
        fail("the certificate cannot be written");
    put_map(&command, 6);
    put_pair(&command, "type", "Attach");
    put_pair(&command, "edge", o->edge);
    put_text(&command, "certificate");
    put_bytes(&command, der, (size_t)der_bytes);
    put_pair(&command, "incarnation", instance);
    put_text(&command, "first_time");
    put(&command, "\xc3", 1); /* True. */
    put_text(&command, "datagram_versions");
    put_array(&command, 1);
    put_number(&command, 1);
    OPENSSL_free(der);
    *attached = expect(ask(s, &command, answer), "AttachedOutcome");
}

static uint32_t publish(session *s, const options *o, body *answer)
{
    static body command;
    char name[512];
    snprintf(name, sizeof name, "%s/%s", o->name, o->quantity);
    put_map(&command, 2);
    put_pair(&command, "type", "Publish");
    put_text(&command, "publications");
    put_array(&command, 1);
    put_map(&command, 2);
    put_pair(&command, "type", "PublicationRequest");
    put_text(&command, "variable");
    put_map(&command, 4);
    put_text(&command, "variable_id");
    put_number(&command, 0); /* The cloud gives one. */
    put_pair(&command, "name", name);
    put_pair(&command, "value_type", "float64");
    put_text(&command, "period");
    put_map(&command, 2);
    put_text(&command, "seconds");
    put_number(&command, 1);
    put_text(&command, "per_seconds");
    put_number(&command, o->rate);
    words variable, outcome = expect(ask(s, &command, answer), "PublishedOutcome");
    if (!member(outcome, "variable", &variable))
        fail("a publication without a variable");
    return (uint32_t)number_of(variable, "variable_id", 0);
}

static void leave(session *s, body *answer)
{
    static body command, bye;
    put_map(&command, 1);
    put_pair(&command, "type", "Detach");
    expect(ask(s, &command, answer), "DoneOutcome");
    put_map(&bye, 1);
    put_pair(&bye, "type", "Bye");
    send_frame(s, &bye);
    SSL_shutdown(s->tls);
    SSL_free(s->tls);
    close(s->socket);
}

/* ---- Events ---- */

/* A datagram of one event, big-endian: header of 16 bytes, event of 24. */
static void write_event(uint8_t *at, uint32_t channel_id, uint64_t counter, uint64_t created_ns,
                        uint32_t variable_id, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    memset(at, 0, 40);
    at[0] = 1;                            /* Version. */
    store(at + 2, 40, 2);                 /* Length. */
    store(at + 4, channel_id, 4);         /* The channel that Attach gave us. */
    store(at + 8, counter, 8);            /* Datagrams, from 1. */
    store(at + 16, created_ns, 8);        /* POSIX nanoseconds. */
    store(at + 24, variable_id, 4);       /* What Publish gave us. */
    store(at + 30, (uint16_t)counter, 2); /* Sequence; options and flags stay 0. */
    store(at + 32, bits, 8);              /* The value. */
}

/* Until then, or until we are stopped, look after the session; there may be pings. */
static void wait_until(session *s, uint64_t at_ns)
{
    while (!is_stopped) {
        words message;
        while (next_frame(s, &message)) {
            answer_edge(s, message);
            drop_frame(s, message);
        }
        uint64_t now = now_ns();
        if (now >= at_ns)
            return;
        receive(s, (int)((at_ns - now) / 1000000));
    }
}

/* How many were sent; `count` is how many were due by then. */
static unsigned send_events(session *s, const options *o, words attached, uint32_t variable_id,
                            unsigned *count)
{
    char host[256], port[8];
    text_of(attached, "host", host, sizeof host);
    snprintf(port, sizeof port, "%u", (unsigned)number_of(attached, "data_port", 0));
    uint32_t channel_id = (uint32_t)number_of(attached, "up_channel_id", 0);
    int udp = connect_socket(host, port, SOCK_DGRAM);
    unsigned sent = 0, i;
    uint64_t slot = now_ns() / NS_PER_S * o->rate + now_ns() % NS_PER_S * o->rate / NS_PER_S + 1;
    for (i = 0; i < o->count; i++, slot++) {
        /* Rounded up, so that the stamp belongs to its slot and not to the one before. */
        uint64_t rest_ns = (slot % o->rate * NS_PER_S + o->rate - 1) / o->rate;
        uint64_t created_ns = slot / o->rate * NS_PER_S + rest_ns;
        wait_until(s, created_ns);
        if (is_stopped)
            break;
        uint8_t datagram[40];
        double value = 230.0 + sin((double)created_ns / 1e9);
        write_event(datagram, channel_id, i + 1, created_ns, variable_id, value);
        sent += send(udp, datagram, sizeof datagram, 0) == (ssize_t)sizeof datagram;
    }
    close(udp);
    *count = i;
    return sent;
}

static void usage(int code)
{
    fputs("usage: publish --edge NAME@HOST:PORT --name NAME [--certificates FOLDER]\n"
          "               [--quantity WORD] [--rate EVENTS_A_SECOND] [--count EVENTS]\n"
          "\n"
          "Registers NAME/WORD with a cloud over TLS and publishes a voltage that wanders.\n",
          code == 0 ? stdout : stderr);
    exit(code);
}

static options read_options(int count, char **words_given)
{
    options o = {.folder = "certificates", .quantity = "voltage", .rate = 30, .count = 300};
    const char *edge = "";
    for (int i = 1; i < count; i += 2) {
        const char *word = words_given[i], *value = i + 1 < count ? words_given[i + 1] : "";
        if (strcmp(word, "--help") == 0)
            usage(0);
        else if (strcmp(word, "--edge") == 0)
            edge = value;
        else if (strcmp(word, "--name") == 0)
            o.name = value;
        else if (strcmp(word, "--certificates") == 0)
            o.folder = value;
        else if (strcmp(word, "--quantity") == 0)
            o.quantity = value;
        else if (strcmp(word, "--rate") == 0)
            o.rate = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(word, "--count") == 0)
            o.count = (unsigned)strtoul(value, NULL, 10);
        else
            usage(2);
    }
    if (o.name == NULL || o.rate == 0 ||
        sscanf(edge, "%255[^@]@%255[^:]:%7[0-9]", o.edge, o.host, o.port) != 3)
        usage(2);
    return o;
}

int main(int count, char **words_given)
{
    static session s;
    static body answer, other;
    options o = read_options(count, words_given);
    char instance[33];
    X509 *certificate;
    words attached;
    setvbuf(stdout, NULL, _IOLBF, 0);
    heed_signals();
    open_session(&s, &o, instance, &certificate);
    say_hello(&s, instance);
    attach(&s, &o, instance, certificate, &answer, &attached);
    uint32_t variable_id = publish(&s, &o, &other);
    printf("publishing %s/%s as variable %u by %s\n", o.name, o.quantity, (unsigned)variable_id,
           o.edge);
    unsigned due, sent = send_events(&s, &o, attached, variable_id, &due);
    leave(&s, &other);
    X509_free(certificate);
    EVP_PKEY_free(s.key);
    printf("published %u of %u events of %s/%s\n", sent, due, o.name, o.quantity);
    return sent == due ? 0 : 1;
}
