#include "seal.h"

#include <dlfcn.h>
#include <pthread.h>

#include "memory.h"
#include "platform.h"

#define NONCE_BYTES 12U

/* libIPSec_MB 1.3 needs 1,008 bytes for an expanded key and 96 for a context. There is room for
 * later releases, and the known answer shows that it was enough. */
#define EXPANDED_BYTES 2048U
#define CONTEXT_BYTES  512U

/* OpenSSL's functions, as its manual declares them; they have had these types since 1.1. */
typedef struct evp_cipher_ctx_st evp_context;
typedef struct {
    evp_context *(*context_new)(void);
    void (*context_free)(evp_context *);
    const void *(*aes_128_gcm)(void);
    int (*encrypt_init)(evp_context *, const void *cipher, void *engine, const uint8_t *key,
                        const uint8_t *nonce);
    int (*encrypt)(evp_context *, uint8_t *to, int *written, const uint8_t *from, int bytes);
    int (*encrypt_final)(evp_context *, uint8_t *to, int *written);
    int (*decrypt_init)(evp_context *, const void *cipher, void *engine, const uint8_t *key,
                        const uint8_t *nonce);
    int (*decrypt)(evp_context *, uint8_t *to, int *written, const uint8_t *from, int bytes);
    int (*decrypt_final)(evp_context *, uint8_t *to, int *written);
    int (*control)(evp_context *, int type, int bytes, void *data);
} evp_functions;

#define EVP_GET_TAG 0x10
#define EVP_SET_TAG 0x11

/* libIPSec_MB's functions for one instruction set. */
typedef void (*expand_function)(const void *key, void *expanded);
typedef void (*crypt_function)(const void *expanded, void *context, uint8_t *to,
                               const uint8_t *from, uint64_t bytes, const uint8_t *nonce,
                               const uint8_t *header, uint64_t header_bytes, uint8_t *tag,
                               uint64_t tag_bytes);

static struct {
    pthread_once_t once;
    evp_functions evp;
    expand_function expand;
    crypt_function encrypt, decrypt;
    const char *evp_name, *ipsec_mb_name; /* Empty: the backend is not there. */
} loaded = {.once = PTHREAD_ONCE_INIT, .evp_name = "", .ipsec_mb_name = ""};

struct gs_seal_key {
    uint8_t expanded[EXPANDED_BYTES] __attribute__((aligned(64))); /* libIPSec_MB */
    uint8_t context[CONTEXT_BYTES] __attribute__((aligned(64)));
    evp_context *sealing, *opening; /* OpenSSL; it keeps one direction in a context. */
    gs_seal_backend backend;
    uint8_t key[GS_SEAL_KEY_BYTES];
    uint8_t salt[GS_SEAL_SALT_BYTES];
};
_Static_assert(sizeof(gs_seal_key) <= GS_SECRET_BYTES_MAX, "in one piece of secret memory");

/* --- One datagram -------------------------------------------------------------------------- */

static inline void make_nonce(const gs_seal_key *key, const uint8_t *datagram, uint32_t port,
                              uint8_t nonce[NONCE_BYTES])
{
    memcpy(nonce, key->salt, GS_SEAL_SALT_BYTES);
    nonce[GS_SEAL_SALT_BYTES - 1] ^= (uint8_t)port;
    memcpy(nonce + GS_SEAL_SALT_BYTES, datagram + 8, 8);
}

static bool is_equal_in_constant_time(const uint8_t *one, const uint8_t *other)
{
    uint64_t a[2], b[2];
    memcpy(a, one, sizeof a);
    memcpy(b, other, sizeof b);
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

static void seal_by_evp(gs_seal_key *key, uint8_t *datagram, int body_bytes, const uint8_t *nonce)
{
    const evp_functions *evp = &loaded.evp;
    uint8_t *body = datagram + GS_HEADER_BYTES;
    int written;
    bool is_done =
        evp->encrypt_init(key->sealing, NULL, NULL, NULL, nonce) == 1 &&
        evp->encrypt(key->sealing, NULL, &written, datagram, (int)GS_HEADER_BYTES) == 1 &&
        evp->encrypt(key->sealing, body, &written, body, body_bytes) == 1 &&
        evp->encrypt_final(key->sealing, body + body_bytes, &written) == 1 &&
        evp->control(key->sealing, EVP_GET_TAG, GS_SEAL_TAG_BYTES, body + body_bytes) == 1;
    if (!is_done) /* Nothing may leave in the clear: a receiver drops a datagram of zeros. */
        memset(body, 0, (size_t)body_bytes + GS_SEAL_TAG_BYTES);
}

void gs_seal(gs_seal_key *key, uint8_t *datagram, uint32_t bytes, uint32_t port)
{
    uint8_t nonce[NONCE_BYTES], *body = datagram + GS_HEADER_BYTES;
    uint32_t body_bytes = bytes - GS_HEADER_BYTES;
    make_nonce(key, datagram, port, nonce);
    if (key->backend == GS_SEAL_IPSEC_MB)
        loaded.encrypt(key->expanded, key->context, body, body, body_bytes, nonce, datagram,
                       GS_HEADER_BYTES, datagram + bytes, GS_SEAL_TAG_BYTES);
    else
        seal_by_evp(key, datagram, (int)body_bytes, nonce);
}

static bool unseal_by_evp(gs_seal_key *key, uint8_t *datagram, int body_bytes, const uint8_t *nonce)
{
    const evp_functions *evp = &loaded.evp;
    uint8_t *body = datagram + GS_HEADER_BYTES;
    int written;
    return evp->decrypt_init(key->opening, NULL, NULL, NULL, nonce) == 1 &&
           evp->decrypt(key->opening, NULL, &written, datagram, (int)GS_HEADER_BYTES) == 1 &&
           evp->decrypt(key->opening, body, &written, body, body_bytes) == 1 &&
           evp->control(key->opening, EVP_SET_TAG, GS_SEAL_TAG_BYTES, body + body_bytes) == 1 &&
           evp->decrypt_final(key->opening, body + body_bytes, &written) == 1;
}

bool gs_unseal(gs_seal_key *key, uint8_t *datagram, uint32_t bytes, uint32_t port)
{
    if (bytes < GS_HEADER_BYTES + GS_SEAL_TAG_BYTES)
        return false;
    uint8_t nonce[NONCE_BYTES], tag[GS_SEAL_TAG_BYTES], *body = datagram + GS_HEADER_BYTES;
    uint32_t body_bytes = bytes - GS_HEADER_BYTES - GS_SEAL_TAG_BYTES;
    make_nonce(key, datagram, port, nonce);
    if (key->backend != GS_SEAL_IPSEC_MB)
        return unseal_by_evp(key, datagram, (int)body_bytes, nonce);
    loaded.decrypt(key->expanded, key->context, body, body, body_bytes, nonce, datagram,
                   GS_HEADER_BYTES, tag, GS_SEAL_TAG_BYTES);
    return is_equal_in_constant_time(tag, body + body_bytes);
}

/* --- Keys ---------------------------------------------------------------------------------- */

void gs_seal_wipe(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
    __asm__ volatile("" : : "r"(memory) : "memory"); /* The compiler must not leave it out. */
}

static bool open_evp(gs_seal_key *opened, const uint8_t *key)
{
    const evp_functions *evp = &loaded.evp;
    opened->sealing = evp->context_new();
    opened->opening = evp->context_new();
    return opened->sealing != NULL && opened->opening != NULL &&
           evp->encrypt_init(opened->sealing, evp->aes_128_gcm(), NULL, key, NULL) == 1 &&
           evp->decrypt_init(opened->opening, evp->aes_128_gcm(), NULL, key, NULL) == 1;
}

static gs_seal_key *key_open(gs_seal_backend backend, const uint8_t *key, const uint8_t *salt)
{
    gs_seal_key *opened = gs_secret_allocate();
    opened->backend = backend;
    memcpy(opened->key, key, GS_SEAL_KEY_BYTES);
    memcpy(opened->salt, salt, GS_SEAL_SALT_BYTES);
    if (backend == GS_SEAL_IPSEC_MB) {
        loaded.expand(key, opened->expanded);
    } else if (!open_evp(opened, key)) {
        gs_seal_key_close(opened);
        return NULL;
    }
    return opened;
}

gs_seal_key *gs_seal_key_open(gs_seal_backend backend, const uint8_t key[GS_SEAL_KEY_BYTES],
                              const uint8_t salt[GS_SEAL_SALT_BYTES])
{
    if (backend == GS_SEAL_BEST)
        backend = gs_seal_best();
    return *gs_seal_backend_name(backend) == 0 ? NULL : key_open(backend, key, salt);
}

void gs_seal_key_close(gs_seal_key *key)
{
    if (key == NULL)
        return;
    if (key->sealing != NULL)
        loaded.evp.context_free(key->sealing); /* OpenSSL wipes its contexts. */
    if (key->opening != NULL)
        loaded.evp.context_free(key->opening);
    gs_seal_wipe(key, sizeof *key);
    gs_secret_release(key);
}

bool gs_seal_key_is(const gs_seal_key *opened, const uint8_t key[GS_SEAL_KEY_BYTES],
                    const uint8_t salt[GS_SEAL_SALT_BYTES])
{
    return memcmp(opened->key, key, GS_SEAL_KEY_BYTES) == 0 &&
           memcmp(opened->salt, salt, GS_SEAL_SALT_BYTES) == 0;
}

/* --- Backends ------------------------------------------------------------------------------ */

/* An answer of AES-128-GCM computed by another implementation: tests/protocol/test_seal.py. */
static const uint8_t KNOWN_KEY[GS_SEAL_KEY_BYTES + 1] = "gridstat-key-016";
static const uint8_t KNOWN_SALT[GS_SEAL_SALT_BYTES] = {'s', 'a', 'l', 't'};
#define KNOWN_BODY_BYTES 40U
static const uint8_t KNOWN_SEALED[KNOWN_BODY_BYTES + GS_SEAL_TAG_BYTES] = {
    0x00, 0xa7, 0x67, 0xa3, 0xa4, 0xea, 0xc9, 0x40, 0x66, 0x9c, 0xc4, 0x02, 0x3b, 0x75,
    0xb5, 0x19, 0xb7, 0x30, 0xf3, 0x7d, 0x6b, 0x03, 0x02, 0x0c, 0xd1, 0x2c, 0xaa, 0x9c,
    0x39, 0x13, 0xa8, 0xa0, 0xe4, 0x27, 0x98, 0xaa, 0x8c, 0x00, 0xc3, 0x83, 0x85, 0x04,
    0x7e, 0x1c, 0xd4, 0xa1, 0x7e, 0xa4, 0x81, 0x73, 0x6f, 0x32, 0x8a, 0x46, 0x2f, 0xf3,
};

static bool computes_the_known_answer(gs_seal_backend backend)
{
    uint8_t datagram[GS_HEADER_BYTES + KNOWN_BODY_BYTES + GS_SEAL_TAG_BYTES];
    for (uint32_t i = 0; i < sizeof datagram; i++)
        datagram[i] = (uint8_t)i;
    gs_seal_key *key = key_open(backend, KNOWN_KEY, KNOWN_SALT);
    if (key == NULL)
        return false;
    gs_seal(key, datagram, GS_HEADER_BYTES + KNOWN_BODY_BYTES, 0);
    bool is_right = memcmp(datagram + GS_HEADER_BYTES, KNOWN_SEALED, sizeof KNOWN_SEALED) == 0 &&
                    gs_unseal(key, datagram, sizeof datagram, 0);
    for (uint32_t i = 0; i < GS_HEADER_BYTES + KNOWN_BODY_BYTES; i++)
        is_right = is_right && datagram[i] == i;
    datagram[0] ^= 1;
    is_right = is_right && !gs_unseal(key, datagram, sizeof datagram, 0);
    gs_seal_key_close(key);
    return is_right;
}

static void *load(const char *const *names)
{
    void *library = NULL;
    for (; *names != NULL && library == NULL; names++)
        library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* POSIX lets a function's address be copied out of an object pointer, which ISO C does not. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void load_evp(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.4",  "libcrypto.so.1.1",
                                        "libcrypto.so",   "libcrypto.dylib", NULL};
    evp_functions *evp = &loaded.evp;
    void *library = load(names);
    bool is_whole = library != NULL && find(library, "EVP_CIPHER_CTX_new", &evp->context_new) &&
                    find(library, "EVP_CIPHER_CTX_free", &evp->context_free) &&
                    find(library, "EVP_aes_128_gcm", &evp->aes_128_gcm) &&
                    find(library, "EVP_EncryptInit_ex", &evp->encrypt_init) &&
                    find(library, "EVP_EncryptUpdate", &evp->encrypt) &&
                    find(library, "EVP_EncryptFinal_ex", &evp->encrypt_final) &&
                    find(library, "EVP_DecryptInit_ex", &evp->decrypt_init) &&
                    find(library, "EVP_DecryptUpdate", &evp->decrypt) &&
                    find(library, "EVP_DecryptFinal_ex", &evp->decrypt_final) &&
                    find(library, "EVP_CIPHER_CTX_ctrl", &evp->control);
    if (is_whole && computes_the_known_answer(GS_SEAL_EVP))
        loaded.evp_name = "OpenSSL libcrypto";
}

#if GS_LINUX && defined(__x86_64__)
typedef struct {
    bool is_supported;
    const char *name, *expand, *encrypt, *decrypt;
} instruction_set;

#define FUNCTIONS(set)                                                          \
    "libIPSec_MB (" #set ")", "aes_gcm_pre_128_" #set, "aes_gcm_enc_128_" #set, \
        "aes_gcm_dec_128_" #set

static void load_ipsec_mb(void)
{
    static const char *const names[] = {"libIPSec_MB.so.1", "libIPSec_MB.so.2", NULL};
    bool has_aes = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool has_vaes = __builtin_cpu_supports("vaes") && __builtin_cpu_supports("vpclmulqdq");
    const instruction_set sets[] = {
        {has_aes && has_avx512 && has_vaes, FUNCTIONS(vaes_avx512)},
        {has_aes && has_avx512, FUNCTIONS(avx512)},
        {has_aes && __builtin_cpu_supports("avx2"), FUNCTIONS(avx_gen4)},
        {has_aes && __builtin_cpu_supports("avx"), FUNCTIONS(avx_gen2)},
        {has_aes, FUNCTIONS(sse)},
    };
    void *library = load(names);
    for (size_t i = 0; library != NULL && i < sizeof sets / sizeof *sets; i++) {
        const instruction_set *set = &sets[i];
        if (set->is_supported && find(library, set->expand, &loaded.expand) &&
            find(library, set->encrypt, &loaded.encrypt) &&
            find(library, set->decrypt, &loaded.decrypt) &&
            computes_the_known_answer(GS_SEAL_IPSEC_MB)) {
            loaded.ipsec_mb_name = set->name;
            return;
        }
    }
}
#else
static void load_ipsec_mb(void)
{
}
#endif

static void load_backends(void)
{
    load_evp();
    load_ipsec_mb();
}

const char *gs_seal_backend_name(gs_seal_backend backend)
{
    pthread_once(&loaded.once, load_backends);
    switch (backend) {
    case GS_SEAL_EVP:
        return loaded.evp_name;
    case GS_SEAL_IPSEC_MB:
        return loaded.ipsec_mb_name;
    case GS_SEAL_NONE:
    case GS_SEAL_BEST:
        break;
    }
    return "";
}

gs_seal_backend gs_seal_best(void)
{
    if (*gs_seal_backend_name(GS_SEAL_IPSEC_MB) != 0)
        return GS_SEAL_IPSEC_MB;
    return *gs_seal_backend_name(GS_SEAL_EVP) != 0 ? GS_SEAL_EVP : GS_SEAL_NONE;
}
