/* A session with an edge router: mutual TLS 1.3, frames of MessagePack, signed requests.
 *
 * The first thing that goes wrong ends the program with a word; a real publisher would connect
 * again, with the same incarnation and `first_time` false, and go on.
 */
#ifndef EDGE_SESSION_H
#define EDGE_SESSION_H

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "message_pack.h"

enum { FRAME_HEAD_BYTES = 8, SIGNATURE_BYTES = 64, ANSWER_WITHIN_S = 10 };
#define NS_PER_S 1000000000ULL

static _Noreturn void fail(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    unsigned long code = ERR_get_error();
    if (code != 0)
        fprintf(stderr, "openssl: %s\n", ERR_error_string(code, NULL));
    exit(1);
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* ---- The session ---- */

typedef struct {
    const char *name, *folder, *quantity;
    char edge[256], host[256], port[8];
    unsigned rate, count;
} options;

typedef struct {
    SSL *tls;
    int socket;
    EVP_PKEY *key;
    const char *name;
    uint64_t request_id;
    size_t held;
    uint8_t buffer[FRAME_HEAD_BYTES + 4 * BODY_BYTES_MAX];
} session;

static inline void send_frame(session *s, const body *message)
{
    static uint8_t frame[FRAME_HEAD_BYTES + BODY_BYTES_MAX];
    memset(frame, 0, FRAME_HEAD_BYTES);
    frame[0] = 1;
    store(frame + 4, message->length, 4);
    memcpy(frame + FRAME_HEAD_BYTES, message->bytes, message->length);
    int length = (int)(FRAME_HEAD_BYTES + message->length);
    int wrote;
    while ((wrote = SSL_write(s->tls, frame, length)) <= 0) {
        int why = SSL_get_error(s->tls, wrote);
        struct pollfd ready = {s->socket, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, 0};
        if ((why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) ||
            (poll(&ready, 1, 1000 * ANSWER_WITHIN_S) <= 0 && errno != EINTR))
            fail("the edge router has gone");
    }
}

/* Reads what has come, waiting for something at most so long. */
static inline void receive(session *s, int wait_ms)
{
    struct pollfd ready = {s->socket, POLLIN, 0};
    if (SSL_pending(s->tls) == 0 && poll(&ready, 1, wait_ms) <= 0)
        return;
    int got = SSL_read(s->tls, s->buffer + s->held, (int)(sizeof s->buffer - s->held));
    if (got > 0)
        s->held += (size_t)got;
    else if (SSL_get_error(s->tls, got) != SSL_ERROR_WANT_READ)
        fail("the edge router has ended the session");
}

/* The first whole frame that is held, if any; `drop_frame` makes room for the next. */
static inline bool next_frame(const session *s, words *message)
{
    if (s->held < FRAME_HEAD_BYTES)
        return false;
    uint64_t length = load(s->buffer + 4, 4);
    if (s->buffer[0] != 1 || length > sizeof s->buffer - FRAME_HEAD_BYTES)
        fail("a frame that cannot be read");
    *message = (words){s->buffer + FRAME_HEAD_BYTES, s->buffer + FRAME_HEAD_BYTES + length};
    return s->held >= FRAME_HEAD_BYTES + length;
}

static inline void drop_frame(session *s, words message)
{
    size_t used = (size_t)(message.end - s->buffer);
    memmove(s->buffer, message.end, s->held - used);
    s->held -= used;
}

/* Answers pings and obeys Bye; whatever else it is, is for the caller. */
static inline void answer_edge(session *s, words message)
{
    words type;
    if (!member(message, "type", &type))
        return;
    if (is_text(type, "Ping")) {
        static body pong;
        pong.length = 0;
        put_map(&pong, 2);
        put_pair(&pong, "type", "Pong");
        put_text(&pong, "number");
        put_number(&pong, number_of(message, "number", 0));
        send_frame(s, &pong);
    } else if (is_text(type, "Bye")) {
        char reason[512];
        text_of(message, "reason", reason, sizeof reason);
        fail("refused (%llu): %s", (unsigned long long)number_of(message, "code", 0), reason);
    }
}

static inline void sign(session *s, const body *command, uint8_t *signature)
{
    static body signed_words;
    signed_words.length = 0;
    uint8_t number[8];
    put(&signed_words, "gridstat request 1\n", 19);
    store(number, strlen(s->name), 2);
    put(&signed_words, number, 2);
    put(&signed_words, s->name, strlen(s->name));
    store(number, s->request_id, 8);
    put(&signed_words, number, 8);
    put(&signed_words, command->bytes, command->length);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t length = SIGNATURE_BYTES;
    if (EVP_DigestSignInit(context, NULL, NULL, NULL, s->key) != 1 ||
        EVP_DigestSign(context, signature, &length, signed_words.bytes, signed_words.length) != 1)
        fail("the request cannot be signed");
    EVP_MD_CTX_free(context);
}

/* Submits a command and waits for its first outcome, which is copied to `answer`. */
static inline words ask(session *s, const body *command, body *answer)
{
    static body submit;
    uint8_t signature[SIGNATURE_BYTES];
    s->request_id++;
    sign(s, command, signature);
    submit.length = 0;
    put_map(&submit, 4);
    put_pair(&submit, "type", "Submit");
    put_text(&submit, "request_id");
    put_number(&submit, s->request_id);
    put_text(&submit, "body");
    put_bytes(&submit, command->bytes, command->length);
    put_text(&submit, "signature");
    put_bytes(&submit, signature, sizeof signature);
    send_frame(s, &submit);
    for (uint64_t until_ns = now_ns() + ANSWER_WITHIN_S * NS_PER_S; now_ns() < until_ns;) {
        words message, inside;
        if (!next_frame(s, &message)) {
            receive(s, 1000);
            continue;
        }
        answer_edge(s, message);
        element head;
        bool is_ours = number_of(message, "request_id", 0) == s->request_id &&
                       member(message, "body", &inside) && read_element(inside, &head) &&
                       head.kind == 0xa0 && head.value <= (uint64_t)(head.rest.end - head.rest.at);
        if (is_ours) {
            answer->length = 0;
            put(answer, head.rest.at, head.value);
        }
        drop_frame(s, message);
        words list, whole = {answer->bytes, answer->bytes + answer->length};
        if (is_ours && member(whole, "outcomes", &list) && read_element(list, &head) &&
            head.kind == 0x90 && head.value > 0)
            return head.rest;
    }
    fail("nobody answers");
}

/* The outcome, if it is of this type; else the reason that it gives, and the end. */
static inline words expect(words outcome, const char *type)
{
    words found;
    if (!member(outcome, "type", &found) || !is_text(found, type)) {
        char reason[512], hint[512];
        text_of(outcome, "reason", reason, sizeof reason);
        text_of(outcome, "hint", hint, sizeof hint);
        fail("refused (%llu): %s\nhint: %s", (unsigned long long)number_of(outcome, "code", 0),
             reason, hint);
    }
    return outcome;
}

/* ---- Opening it ---- */

static inline void open_file_name(char *path, size_t size, const options *o, const char *ending)
{
    int length = snprintf(path, size, "%s/endpoint-", o->folder);
    for (const char *at = o->name; *at != '\0' && length + 3 < (int)size; at++)
        length += snprintf(path + length, size - (size_t)length, *at == '/' ? "__" : "%c", *at);
    snprintf(path + length, size - (size_t)length, ".%s", ending);
}

static inline void *read_pem(const char *path, bool is_key)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail("%s cannot be read: %s", path, strerror(errno));
    void *found = is_key ? (void *)PEM_read_PrivateKey(file, NULL, NULL, NULL)
                         : (void *)PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    if (found == NULL)
        fail("%s holds no %s", path, is_key ? "key" : "certificate");
    return found;
}

static inline int connect_socket(const char *host, const char *port, int kind)
{
    struct addrinfo hints = {.ai_socktype = kind}, *found;
    int problem = getaddrinfo(host, port, &hints, &found);
    if (problem != 0)
        fail("%s: %s", host, gai_strerror(problem));
    int made = -1;
    for (struct addrinfo *at = found; at != NULL && made < 0; at = at->ai_next) {
        made = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (made >= 0 && connect(made, at->ai_addr, at->ai_addrlen) != 0) {
            close(made);
            made = -1;
        }
    }
    freeaddrinfo(found);
    if (made < 0)
        fail("%s port %s cannot be reached: %s", host, port, strerror(errno));
    return made;
}

/* Whether the certificate of the peer names the edge router that we mean. */
static inline bool is_edge(SSL *tls, const char *edge)
{
    char wanted[300];
    snprintf(wanted, sizeof wanted, "gridstat://router/%s", edge);
    X509 *peer = SSL_get_peer_certificate(tls);
    GENERAL_NAMES *names = X509_get_ext_d2i(peer, NID_subject_alt_name, NULL, NULL);
    bool is_it = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_URI) {
            const ASN1_STRING *uri = name->d.uniformResourceIdentifier;
            is_it |= (size_t)ASN1_STRING_length(uri) == strlen(wanted) &&
                     memcmp(ASN1_STRING_get0_data(uri), wanted, strlen(wanted)) == 0;
        }
    }
    GENERAL_NAMES_free(names);
    X509_free(peer);
    return is_it;
}

static inline void open_session(session *s, const options *o, char *instance, X509 **certificate)
{
    char authority[512], own[512], key[512];
    snprintf(authority, sizeof authority, "%s/ca.pem", o->folder);
    open_file_name(own, sizeof own, o, "pem");
    open_file_name(key, sizeof key, o, "key");
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_locations(context, authority, NULL) != 1 ||
        SSL_CTX_use_certificate_chain_file(context, own) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        fail("the certificates in %s cannot be used", o->folder);
    *certificate = read_pem(own, false);
    s->key = read_pem(key, true);
    s->name = o->name;
    s->request_id = now_ns();
    s->socket = connect_socket(o->host, o->port, SOCK_STREAM);
    s->tls = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(s->tls, s->socket);
    if (SSL_connect(s->tls) != 1)
        fail("no TLS session with %s", o->edge);
    if (!is_edge(s->tls, o->edge))
        fail("the peer is not the edge router %s", o->edge);
    fcntl(s->socket, F_SETFL, fcntl(s->socket, F_GETFL) | O_NONBLOCK);
    uint8_t noise[16];
    if (RAND_bytes(noise, sizeof noise) != 1)
        fail("no random numbers");
    for (size_t i = 0; i < sizeof noise; i++)
        snprintf(instance + 2 * i, 3, "%02x", noise[i]);
}

static inline void say_hello(session *s, const char *instance)
{
    static body hello;
    put_map(&hello, 6);
    put_pair(&hello, "type", "Hello");
    put_pair(&hello, "role", "endpoint");
    put_pair(&hello, "name", s->name);
    put_pair(&hello, "instance", instance);
    put_text(&hello, "schema_version");
    put_number(&hello, 1);
    put_text(&hello, "schema_version_min");
    put_number(&hello, 1);
    send_frame(s, &hello);
}

#endif
