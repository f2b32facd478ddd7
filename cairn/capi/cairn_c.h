/* Cairn's C interface: the manager, the connector, events and metrics, for every language that can call C.
 *
 *   cairn_error error = CAIRN_INIT(cairn_error);
 *   cairn_manager_options options = CAIRN_INIT(cairn_manager_options);
 *   options.config_file = "cairn.toml";
 *   cairn_manager* manager = NULL;
 *   if (cairn_manager_create(&options, &manager, &error) != CAIRN_OK) {
 *     fprintf(stderr, "%s\n", error.message);
 *   }
 *
 * Return values  A function that returns int32_t returns a cairn_code: CAIRN_OK (0), or what went wrong. `error` may be NULL;
 *                if it is not, a failed call writes the code and a message to it. A call that fails has no effect, unless
 *                its comment says otherwise, and never throws. If memory runs out, it returns CAIRN_EXHAUSTED and can be
 *                called again. Functions that return something else say what they return if they fail.
 * Handles        (cairn_manager*, cairn_blocks*, ...) are opaque. The caller destroys what a *_create() made with the
 *                *_destroy() of the same name; destroying NULL does nothing. Every other function requires a valid handle:
 *                it does not check for NULL. A handle that belongs to another one (cairn_scheduler_manager) is borrowed: the
 *                caller does not destroy it, and it ends with its owner.
 * Structs        begin with struct_size, which the caller sets to sizeof the struct; CAIRN_INIT does. Zero in any other
 *                member means its default. Later versions add members at the end; a library gives members beyond the
 *                caller's struct_size their defaults.
 * Input          Strings are UTF-8 and end with a 0. Strings and arrays are read during the call only. Elements of an array of
 *                structs are as far apart as struct_size of the first element says.
 * Output text    goes to the caller's `buffer` of `capacity` bytes and always ends with a 0. If it does not fit, it is cut
 *                off. The function returns how many bytes it wrote, not counting the 0. *needed (unless `needed` is NULL) is
 *                set to the capacity that the whole text needs, including the 0, or to 0 if memory ran out. To ask for the
 *                size first, pass NULL and 0.
 * Output arrays  that the caller provides come with a capacity. Arrays that the library provides stay valid until the next
 *                call of the same function on the same handle. Their elements may grow in later versions: the struct that
 *                holds the array has the distance of two elements in *_stride, and CAIRN_AT() finds an element.
 * Threads        [any]: may be called from any thread at any time. [one]: one thread at a time for each handle.
 * Versions       CAIRN_API_VERSION is the version of this header, cairn_api_version() that of the library. A library works with
 *                programs compiled against its own or any earlier version of this header.
 */
#ifndef CAIRN_CAIRN_C_H_
#define CAIRN_CAIRN_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CAIRN_API __attribute__((visibility("default")))
#else
#define CAIRN_API
#endif

#define CAIRN_API_VERSION 1
/* cairn_scheduler_options options = CAIRN_INIT(cairn_scheduler_options); */
#define CAIRN_INIT(type) {.struct_size = sizeof(type)}
/* Element i of an array that the library provides: CAIRN_AT(cairn_loaded, outcomes.loaded, outcomes.loaded_stride, i)->tokens */
#define CAIRN_AT(type, first, stride, i) ((const type*)(const void*)((const char*)(first) + (size_t)(i) * (stride)))

CAIRN_API uint32_t cairn_api_version(void); /* [any] */
CAIRN_API const char* cairn_version(void);  /* [any] "0.1.0"; the caller does not free it */

/* ------------------------------------------------------------------ errors */

typedef enum cairn_code {
  CAIRN_OK = 0,
  CAIRN_INVALID_ARGUMENT = 1,    /* the input is wrong: fix the call */
  CAIRN_FAILED_PRECONDITION = 2, /* the input is fine, but the object is not in a state for this call */
  CAIRN_NOT_FOUND = 3,
  CAIRN_ALREADY_EXISTS = 4,
  CAIRN_EXHAUSTED = 5,    /* a capacity is used up: try again after something is released */
  CAIRN_OUT_OF_RANGE = 6, /* an index or a capacity is too large or too small */
  CAIRN_CORRUPT = 7,      /* bytes from a file or another process are damaged */
  CAIRN_UNAVAILABLE = 8,  /* a device, a peer or a system facility is missing */
  CAIRN_IO = 9,           /* reading or writing a file or a socket failed */
  CAIRN_EXPIRED = 10,     /* the deadline passed */
  CAIRN_CANCELLED = 11
} cairn_code;

typedef struct cairn_error {
  size_t struct_size;
  int32_t code;       /* a cairn_code */
  char message[1024]; /* what failed, on what, why, and what to do; ends with a 0 */
} cairn_error;

/* [any] "invalid_argument"; "unknown" if `code` is not a cairn_code. The caller does not free it. */
CAIRN_API const char* cairn_code_name(int32_t code);

/* -------------------------------------------------------------------- keys */

/* Names the tokens of a block and all tokens before it. */
typedef struct cairn_key {
  uint64_t high;
  uint64_t low;
} cairn_key;

/* The placeholder tokens of one multimodal item (an image, a clip). Keys ignore the ids of these tokens; they are made from
 * the hash of the item and the position inside it. */
typedef struct cairn_mm_run {
  size_t struct_size;
  uint64_t item_hash;   /* hash of the item's content, made by the caller */
  uint64_t offset;      /* index of the run's first token in the request */
  uint32_t length;      /* number of tokens */
  uint32_t item_offset; /* placeholder tokens of the same item before this run; 0 unless the item was split */
} cairn_mm_run;

/* The tokens of a request, and everything else that goes into their keys. */
typedef struct cairn_prompt {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
  const char* salt;            /* requests with different salts share no blocks; NULL or "" for none */
  const char* lora_name;       /* requests with different adapters share no blocks; NULL or "" for none */
  const cairn_mm_run* mm_runs; /* in any order; runs must not overlap */
  size_t mm_run_count;
} cairn_prompt;

/* ----------------------------------------------------------------- manager */

/* The tiers: device memory, host memory, disk. A `level` argument that is none of these returns CAIRN_INVALID_ARGUMENT. */
typedef enum cairn_level { CAIRN_G1 = 0, CAIRN_G2 = 1, CAIRN_G3 = 2 } cairn_level;

typedef struct cairn_manager cairn_manager;
/* A run of blocks of one tier that the caller holds: they cannot be evicted. */
typedef struct cairn_blocks cairn_blocks;

/* A block that an offload filter decides about. */
typedef struct cairn_filter_block {
  cairn_key key;
  uint32_t position; /* index of the block in its sequence */
  uint32_t priority; /* 0 to 100 */
  uint32_t uses;     /* by requests, as far as they are remembered; at least 1 */
  uint32_t tenant;   /* index in requests.tenants plus 1; 0 for the default tenant */
} cairn_filter_block;

/* Blocks that could be copied to the tier below: consecutive blocks of a request that the engine saves, or blocks of any
 * sequences that leave a tier, each after the block before it. */
typedef struct cairn_filter_run {
  size_t struct_size;
  uint32_t from;            /* cairn_level of the tier that has the blocks */
  uint32_t to;              /* cairn_level of the tier below */
  const char* request;      /* id of the request; NULL if it is not known */
  uint64_t sequence_tokens; /* that the request has so far; 0 if they are not known */
  const cairn_filter_block* blocks;
  size_t block_count;
  size_t block_stride;
} cairn_filter_run;

/* Decides, beside the filters of the configuration, which blocks are copied to the tier below. `keep` has block_count bytes,
 * all 1: set those of blocks to 0 that are not to be copied. The rest of a sequence after such a block is not copied either.
 * Called once for a run of blocks, on threads of Cairn, maybe on two at once, with no lock held. It may look up blocks and
 * read status; it must not wait for a copy, create or destroy handles, or keep pointers that it is given. A call that takes
 * longer than the limit is an incident. After eight such calls in a row, or one that has not returned 20 ms beyond the limit,
 * the filter is not called for a while, and no block is copied that it would be asked about. If a call has not returned a
 * second after its handle is destroyed, `context` has to stay valid until it does. */
typedef void (*cairn_offload_filter)(void* context, const cairn_filter_run* run, uint8_t* keep);

typedef struct cairn_manager_options {
  size_t struct_size;
  const char* config;                  /* configuration as TOML text, */
  const char* config_file;             /* or the path of a TOML file; not both. If both are NULL, the defaults apply */
  uint32_t use_environment;            /* 1: environment variables CAIRN_* override the configuration */
  cairn_offload_filter offload_filter; /* NULL: none */
  void* offload_filter_context;        /* passed to it */
  uint64_t offload_filter_limit_us;    /* of a call; 0: 1000 */
} cairn_manager_options;

/* [any] If the configuration has mistakes, `error` lists all of them (as many as fit). */
CAIRN_API int32_t cairn_manager_create(const cairn_manager_options* options, cairn_manager** manager,
                                       cairn_error* error);
/* [one] Release all blocks first. Waits for copies in flight for at most the time that `shutdown` in the configuration
 * allows. */
CAIRN_API void cairn_manager_destroy(cairn_manager* manager);

CAIRN_API uint32_t cairn_manager_block_size(const cairn_manager* manager); /* [any] tokens in a block */

/* [any] Computes the keys of the full blocks of a prompt and writes them to `keys`, which has room for `capacity` keys.
 * *count is set to the number of full blocks, token_count / block size. If that is more than `capacity`, nothing is written to
 * `keys` and the call returns CAIRN_OUT_OF_RANGE; to ask for the number, pass NULL and 0.
 * Keys depend on model.scheme, model.secret, the tenant and the model: managers that differ in one of them make different keys.
 * Returns CAIRN_FAILED_PRECONDITION if model.scheme is vllm, sglang or router, whose keys the engine makes. */
CAIRN_API int32_t cairn_manager_hash_prompt(const cairn_manager* manager, const cairn_prompt* prompt, cairn_key* keys,
                                            size_t capacity, size_t* count, cairn_error* error);

/* [any] Looks up the longest cached prefix without holding it. *found (unless NULL) is set to the number of keys, from the
 * first on, that are cached in any tier. levels[i] (unless `levels` is NULL; it has room for `count`) is set to the fastest
 * tier that has key i, for i < *found. */
CAIRN_API int32_t cairn_manager_locate(const cairn_manager* manager, const cairn_key* keys, size_t count,
                                       uint8_t* levels, size_t* found, cairn_error* error);
/* [any] Allocates `count` blocks of a tier for the caller to fill, evicting inactive blocks if needed. Returns CAIRN_EXHAUSTED
 * if too many blocks of the tier are in use, CAIRN_NOT_FOUND if there is no such tier. */
CAIRN_API int32_t cairn_manager_allocate(cairn_manager* manager, uint32_t level, uint32_t count, cairn_blocks** blocks,
                                         cairn_error* error);
/* How long registered blocks are kept once nobody uses them. */
typedef struct cairn_retention {
  size_t struct_size;
  uint32_t priority;        /* 1 to 100, the lowest is evicted first; 0: 35 */
  uint64_t priority_ms;     /* the priority applies for so long, then 35; 0: forever. Needs requests.retention */
  uint64_t time_to_live_ms; /* the blocks are dropped after so long; 0: never. Needs requests.retention */
} cairn_retention;
/* [one for the blocks] Registers allocated blocks that the caller has filled, under one key each. From now on lookups find
 * them. The caller still holds them. `retention` may be NULL: the defaults of its members. */
CAIRN_API int32_t cairn_blocks_register(cairn_blocks* blocks, const cairn_key* keys, size_t count,
                                        const cairn_retention* retention, cairn_error* error);
/* [any] Looks up the longest prefix that one tier has, and holds it. *blocks is set to NULL if the first key is not there. */
CAIRN_API int32_t cairn_manager_match(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                      cairn_blocks** blocks, cairn_error* error);
/* [any] Holds the blocks of all keys that one tier has, in the order of the keys, whatever is missing between them. *blocks is
 * set to NULL if the tier has none of them. positions[i] (unless `positions` is NULL; it has room for `count`) is set to the
 * index of key i's block in `blocks`, or to CAIRN_NO_POSITION. */
#define CAIRN_NO_POSITION UINT32_MAX
CAIRN_API int32_t cairn_manager_match_scattered(cairn_manager* manager, uint32_t level, const cairn_key* keys,
                                                size_t count, uint32_t* positions, cairn_blocks** blocks,
                                                cairn_error* error);
/* [any] How many of the keys, from the first on, are worth loading: loading more would take longer than computing. The first
 * key is that of block `first_block` of its sequence. *blocks is at most what cairn_manager_locate() finds. */
CAIRN_API int32_t cairn_manager_worth_loading(const cairn_manager* manager, const cairn_key* keys, size_t count,
                                              uint32_t first_block, uint32_t* blocks, cairn_error* error);
/* [any, but not from a callback of Cairn] Loads the longest prefix that any tier has into the device tier, waits for it, and
 * holds it. The deadline is deadline_ms milliseconds from now, or onboard.deadline of the configuration if deadline_ms is 0;
 * what has arrived by then is returned. *blocks is set to NULL if that is nothing. If memory runs out, the call returns
 * CAIRN_EXHAUSTED or a shorter prefix. */
CAIRN_API int32_t cairn_manager_load(cairn_manager* manager, const cairn_key* keys, size_t count, uint64_t deadline_ms,
                                     cairn_blocks** blocks, cairn_error* error);
CAIRN_API size_t cairn_blocks_count(const cairn_blocks* blocks); /* [one for the blocks] 0 if `blocks` is NULL */
/* [one for the blocks] Writes the block ids (indices of the blocks in their tier) to `block_ids`, `capacity` at most. Returns
 * the number of blocks, which is more than was written if it exceeds `capacity`. 0 if `blocks` is NULL. */
CAIRN_API size_t cairn_blocks_ids(const cairn_blocks* blocks, uint32_t* block_ids, size_t capacity);
/* [one for the blocks] The caller no longer uses the blocks: registered blocks stay cached until they are evicted, others are
 * free. Releasing NULL does nothing. */
CAIRN_API void cairn_blocks_release(cairn_blocks* blocks);
/* [any] Finds the address of the elements of one head of one token in a block. k_or_v is 0 for keys and 1 for values; layer,
 * token and head count from 0. For a tier in GPU memory it is an address in that memory. Returns CAIRN_OUT_OF_RANGE if an
 * index is too large, CAIRN_FAILED_PRECONDITION if the tier has no addresses: it is a file, or other processes hold it. */
CAIRN_API int32_t cairn_manager_address(const cairn_manager* manager, uint32_t level, uint32_t block_id, uint32_t layer,
                                        uint32_t k_or_v, uint32_t token, uint32_t head, void** address,
                                        cairn_error* error);

/* What a reset dropped. */
typedef struct cairn_reset_report {
  size_t struct_size;
  uint32_t reset;  /* inactive blocks that were dropped */
  uint32_t in_use; /* blocks in use: their holders keep them, lookups no longer find them */
  uint64_t copies; /* blocks in flight to another tier: they will not be stored there */
  uint32_t loads;  /* loads in flight: they end without blocks */
} cairn_reset_report;

/* [any] Drops everything stored in one tier: it is not found there again, neither in this process nor after a restart or a
 * loss of power. Holders of blocks keep them. *count (unless NULL) is set to the number of inactive blocks that were dropped.
 * CAIRN_IO means that the reset took effect in this process but could not be written to the file: after a restart, blocks
 * from before may be found. */
CAIRN_API int32_t cairn_manager_reset(cairn_manager* manager, uint32_t level, uint32_t* count, cairn_error* error);
/* [any] Resets all tiers at once, and everything in flight between them. `report` is NULL, or is filled. */
CAIRN_API int32_t cairn_manager_reset_all(cairn_manager* manager, cairn_reset_report* report, cairn_error* error);
/* [any] Resets all tiers because the weights of the model have changed. weights_generation must be higher than the current
 * one; set model.weights_generation to the same number in the configuration of the next start. */
CAIRN_API int32_t cairn_manager_invalidate(cairn_manager* manager, uint64_t weights_generation,
                                           cairn_reset_report* report, cairn_error* error);
/* [any] Waits until no copy is in flight or pending. Returns CAIRN_EXPIRED if that takes more than timeout_ms. */
CAIRN_API int32_t cairn_manager_drain(cairn_manager* manager, uint64_t timeout_ms, cairn_error* error);
/* [any] Stops (paused = 1) or continues (paused = 0) offloading on the link between two tiers. */
CAIRN_API int32_t cairn_manager_pause(cairn_manager* manager, uint32_t from, uint32_t to, uint32_t paused,
                                      cairn_error* error);
/* [any] Changes the number of blocks of the host tier, up to host.max_size of the configuration. */
CAIRN_API int32_t cairn_manager_resize_host(cairn_manager* manager, uint32_t blocks, cairn_error* error);

/* ------------------------------------------- manager: copies that are started */

/* A copy that was started and may still be in flight. The functions that start one return at once. Wait for its outcome, or
 * poll it with a timeout of 0. Destroying a future neither cancels the copy nor waits for it. Destroy futures before their
 * manager. */
typedef struct cairn_future cairn_future;

typedef struct cairn_load_options {
  size_t struct_size;
  const cairn_key* keys;
  size_t key_count;
  uint64_t deadline_ms; /* what has arrived by then is the outcome; 0: onboard.deadline of the configuration */
  uint32_t max_blocks;  /* 0: any number */
  uint32_t load_all;    /* 1: also what would be faster to compute */
} cairn_load_options;
/* [any] Starts to load the longest prefix that any tier has into the device tier. */
CAIRN_API int32_t cairn_manager_start_load(cairn_manager* manager, const cairn_load_options* options,
                                           cairn_future** future, cairn_error* error);
/* [any] Starts to copy those of the keys that are only on disk to host memory, before they are needed. */
CAIRN_API int32_t cairn_manager_start_prefetch(cairn_manager* manager, const cairn_key* keys, size_t count,
                                               cairn_future** future, cairn_error* error);
/* [any, one for the blocks] Starts to copy registered blocks of a lower tier to the device: into `targets`, as many allocated
 * device blocks, or into new blocks if `targets` is NULL. The copy holds `blocks` too, so the caller may release them. If the
 * call succeeds, it takes the blocks of `targets`: the handle has no blocks from then on, and is still to be released. */
CAIRN_API int32_t cairn_manager_start_onboard(cairn_manager* manager, const cairn_blocks* blocks, cairn_blocks* targets,
                                              cairn_future** future, cairn_error* error);

typedef struct cairn_offload_options {
  size_t struct_size;
  const cairn_key* keys;
  size_t key_count;
  uint32_t priority;    /* 1 to 100, the highest is copied first; 0: 50 */
  uint64_t deadline_ms; /* 0: none */
} cairn_offload_options;
/* [any] Starts to copy blocks to the tier `into` from the tier above it, whatever offload.*.mode says. */
CAIRN_API int32_t cairn_manager_start_offload(cairn_manager* manager, uint32_t into,
                                              const cairn_offload_options* options, cairn_future** future,
                                              cairn_error* error);

typedef struct cairn_future_outcome {
  size_t struct_size;
  /* A load: on the device now, from the first key on. A prefetch: that arrived in host memory. An onboard: on the device now.
   * An offload: in the lower tier now. */
  uint32_t blocks;
  uint32_t from_device; /* a load: of those blocks, where they were found */
  uint32_t from_host;
  uint32_t from_disk;
  uint32_t not_worth_it; /* a load: blocks that were found and are faster to compute */
} cairn_future_outcome;
/* [one] Waits for the outcome, at most timeout_ms; CAIRN_EXPIRED means that the copy is still in flight. Any other error is
 * that of the copy; a load or an offload that falls short is no error. `outcome` (unless NULL) is filled. May be called
 * again. Not from a callback of Cairn. */
CAIRN_API int32_t cairn_future_wait(cairn_future* future, uint64_t timeout_ms, cairn_future_outcome* outcome,
                                    cairn_error* error);
/* [one] The device blocks that a load or an onboard brought, which the caller holds from now on and releases. NULL if there
 * are none, they were taken before, or the outcome is not there yet. */
CAIRN_API cairn_blocks* cairn_future_take_blocks(cairn_future* future);
/* [one] Of an offload: is_below[i] is set to 1 if the block of key i is in the lower tier now, else to 0, for `capacity` keys at
 * most. Returns the number of keys; 0 for other futures, or if the outcome is not there yet. */
CAIRN_API size_t cairn_future_is_below(const cairn_future* future, uint8_t* is_below, size_t capacity);
/* [one] Work that has not begun does not begin. The outcome comes all the same. */
CAIRN_API void cairn_future_cancel(cairn_future* future);
CAIRN_API void cairn_future_destroy(cairn_future* future); /* [one] */

/* -------------------------------------------------- manager: hints and resets */

/* Whether blocks will be needed again. A hint shifts the order of eviction for a time; it never holds a
 * block. */
typedef enum cairn_hint {
  CAIRN_HINT_NONE = 0,           /* nothing is known */
  CAIRN_HINT_RETURNS = 1,        /* again in about the given time: a session that waits for a tool or a person */
  CAIRN_HINT_SYSTEM_PROMPT = 2,  /* many requests begin with these blocks */
  CAIRN_HINT_WILL_NOT_RETURN = 3 /* the session has ended */
} cairn_hint;

/* [any] Applies a hint to the blocks of these keys in all tiers. return_ms is for CAIRN_HINT_RETURNS. *found (unless NULL) is set
 * to the number of blocks found, in all tiers together. Returns CAIRN_FAILED_PRECONDITION unless requests.retention is on. */
CAIRN_API int32_t cairn_manager_hint(cairn_manager* manager, const cairn_key* keys, size_t count, uint32_t hint,
                                     uint64_t return_ms, uint32_t* found, cairn_error* error);

/* How a request ended. Sessions return sooner after a tool call than after the end of a turn: the eviction policy learns
 * that and keeps the right ones. */
typedef enum cairn_ending {
  CAIRN_ENDING_UNKNOWN = 0,     /* the engine does not say */
  CAIRN_ENDING_TOOL_CALL = 1,   /* the model called a tool, whose result comes with the next request */
  CAIRN_ENDING_END_OF_TURN = 2, /* the answer is complete: a person is next */
  CAIRN_ENDING_LENGTH = 3,      /* the answer was cut off at its longest */
  CAIRN_ENDING_ABORT = 4        /* somebody gave the request up */
} cairn_ending;

/* [any] Tells all tiers how the request ended whose sequence these keys are, before or after its blocks are released. *found
 * (unless NULL) is set to the number of blocks found, in all tiers together. Requests of a scheduler end with
 * cairn_scheduler_finish_as() instead. */
CAIRN_API int32_t cairn_manager_end_request(cairn_manager* manager, const cairn_key* keys, size_t count,
                                            uint32_t ending, uint32_t* found, cairn_error* error);

typedef struct cairn_keys_reset {
  size_t struct_size;
  uint32_t reset;
  uint32_t not_found;
  uint32_t in_use; /* not reset */
} cairn_keys_reset;
/* [any] Drops only the blocks of these keys in one tier, and only if they are not in use. No fence: a copy in flight may store
 * one of them again. `outcome` is NULL, or is filled. */
CAIRN_API int32_t cairn_manager_reset_keys(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                           cairn_keys_reset* outcome, cairn_error* error);

/* Tells which tiers were reset since it was created, so that a follower drops what it knows of them. May outlive its manager. */
typedef struct cairn_resets cairn_resets;
CAIRN_API int32_t cairn_resets_create(const cairn_manager* manager, cairn_resets** resets,
                                      cairn_error* error); /* [any] */
/* [one] Returns the tier (cairn_level) of the next reset, oldest first; -1 if there is none. Resets that were dropped because
 * the follower was too slow are counted in *missed (unless NULL), since the creation. */
CAIRN_API int32_t cairn_resets_next(cairn_resets* resets, uint64_t* missed);
CAIRN_API void cairn_resets_destroy(cairn_resets* resets); /* [one] */

/* ------------------------------------------------- manager: status and metrics */

/* What an engine computed in one iteration, and how long that took. */
typedef struct cairn_engine_iteration {
  size_t struct_size;
  uint64_t prefill_tokens; /* tokens of prompts, of all requests */
  /* The tokens before each of them, added up: n tokens after the first p have n*p + n*(n-1)/2. */
  uint64_t prefill_context;
  uint64_t decode_tokens;  /* generated tokens, draft tokens included */
  uint64_t decode_context; /* the tokens before those of each request, added up */
  uint32_t is_full;        /* 1: a prompt was cut off because the engine computes only so many tokens at once */
  uint64_t duration_ns;
} cairn_engine_iteration;
/* [any] For engines without a cairn_scheduler, which reports by itself. cairn_manager_load() is weighed against what is
 * reported here; as long as nothing is, everything is loaded. */
CAIRN_API int32_t cairn_manager_report_iteration(const cairn_manager* manager, const cairn_engine_iteration* iteration,
                                                 cairn_error* error);

/* [any] The state of the manager as JSON: tiers, links, loads, incidents (docs/manager.md lists the members). As for every text,
 * the return value is the number of bytes written. */
CAIRN_API size_t cairn_manager_status(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);
/* [any] Counters and gauges in the text format of Prometheus, version 0.0.4. */
CAIRN_API size_t cairn_manager_metrics(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);

/* ------------------------------------------------------------------ events */

/* A subscription to what is cached where, without gaps. It begins with a snapshot and continues with every change; if the
 * subscriber falls too far behind, it gets a new snapshot. A snapshot is a list of events that share one sequence number: for
 * each tier "cleared", then what is stored in it, then whether it is suspended or resumed. */
typedef struct cairn_events cairn_events;

/* [any] Returns CAIRN_FAILED_PRECONDITION if event_log is 0 in the configuration. The subscription may outlive the manager:
 * cairn_events_next() then returns CAIRN_UNAVAILABLE. */
CAIRN_API int32_t cairn_events_create(const cairn_manager* manager, cairn_events** events, cairn_error* error);
CAIRN_API void cairn_events_destroy(cairn_events* events); /* [one] */
/* [one] The events since the last call as lines of JSON, one line an event, with about max_blocks blocks at most. The text is
 * empty (*needed is 1) if nothing has happened. If *needed is more than `capacity`, the text is kept: call again with a larger
 * buffer. */
CAIRN_API int32_t cairn_events_next(cairn_events* events, size_t max_blocks, char* buffer, size_t capacity,
                                    size_t* needed, cairn_error* error);

/* --------------------------------------------------- connector: scheduler */

/* The connector joins Cairn to an engine that has its own device blocks. The engine's scheduler has one cairn_scheduler; each
 * of its workers has a cairn_worker. An iteration is one step of the engine: its scheduler decides what to run, every worker
 * runs it. In each iteration:
 *
 *   scheduler: cairn_scheduler_take_outcomes()   which loads have ended, which finished requests are released
 *              cairn_scheduler_match()           before a request first runs: how many tokens can be loaded
 *              cairn_scheduler_allocated()       the request got its device blocks; its load is in the next metadata
 *                                                (of a model with layer groups: cairn_scheduler_allocated_groups())
 *              cairn_scheduler_build()           makes the metadata of the iteration, which the engine sends to every worker
 *   worker:    cairn_worker_bind(), start_load(), [wait_for_layer(), save_layer()] for each layer, save_step(),
 *              take_outcomes()
 *
 * cairn_scheduler_add() introduces a request, cairn_scheduler_finish() ends it. Full blocks are saved as they are computed.
 * examples/c/connector.c is a complete engine. */

typedef struct cairn_scheduler cairn_scheduler;
typedef uint64_t cairn_request; /* names a request of one scheduler; never used again; 0 names no request */

/* When a request that loads blocks computes: after its load has ended, or in the same iteration, layer by layer. */
typedef enum cairn_load_mode { CAIRN_LOAD_ASYNC = 0, CAIRN_LOAD_IN_STEP = 1 } cairn_load_mode;

typedef struct cairn_scheduler_options {
  size_t struct_size;
  const char* config;        /* TOML text: [model] of the whole engine, tier sizes of all ranks together, */
  const char* config_file;   /* or the path of a TOML file; not both */
  uint32_t use_environment;  /* 1: CAIRN_* environment variables override the configuration */
  uint32_t device_blocks;    /* number of device blocks that the engine has */
  uint32_t ranks;            /* number of workers; 0: 1 */
  const char* address;       /* where workers connect: "unix:/path" or "tcp:host:port"; NULL: all are in this process */
  const char* secret;        /* shared by scheduler and workers; required for tcp */
  uint32_t load_mode;        /* cairn_load_mode */
  uint32_t loading_blocks;   /* blocks that are loaded at once; 0: 16384 */
  uint32_t least_blocks;     /* fewer blocks are not loaded but computed; 0: 1 */
  uint32_t ask_again;        /* times that match returns CAIRN_ASK_AGAIN for a request, then it computes; 0: 64 */
  uint64_t load_deadline_ms; /* 0: 10000 */
  uint64_t save_deadline_ms; /* 0: 30000 */
  uint32_t pipeline;         /* pipeline stages of the workers; divides `ranks`; 0: 1 */
  const uint32_t* dp_rank;   /* data parallel rank of the engine; NULL: dp_rank of the configuration */
  cairn_offload_filter offload_filter; /* NULL: none */
  void* offload_filter_context;        /* passed to it */
  uint64_t offload_filter_limit_us;    /* of a call; 0: 1000 */
  /* A request that fills at least so many blocks in an iteration is saved while that computes, layer by layer, if its
   * scheduled_tokens are given. 0: 8; UINT32_MAX: blocks are saved after their iteration. */
  uint32_t in_step_save_blocks;
} cairn_scheduler_options;

/* [any] */
CAIRN_API int32_t cairn_scheduler_create(const cairn_scheduler_options* options, cairn_scheduler** scheduler,
                                         cairn_error* error);
/* [one] Workers that were created with this scheduler must be destroyed before. */
CAIRN_API void cairn_scheduler_destroy(cairn_scheduler* scheduler);
/* [any] The scheduler's manager, for locate, status, metrics, events and control. Borrowed. */
CAIRN_API cairn_manager* cairn_scheduler_manager(cairn_scheduler* scheduler);
/* [any] Output text: the address that workers connect to, with the port; empty if all workers are in this process. */
CAIRN_API size_t cairn_scheduler_address(const cairn_scheduler* scheduler, char* buffer, size_t capacity,
                                         size_t* needed);
/* [any] Waits until all workers are connected, at most longest_ms (then CAIRN_EXPIRED). */
CAIRN_API int32_t cairn_scheduler_wait_for_ranks(cairn_scheduler* scheduler, uint64_t longest_ms, cairn_error* error);

/* All functions below are [one]: the thread of the engine's scheduler. None of them waits for a copy. */

typedef struct cairn_new_request {
  size_t struct_size;
  const char* id; /* the engine's name for the request, unique until the request is released */
  const cairn_prompt* prompt;
  uint32_t priority;    /* of the blocks that are saved for it, 1 to 100, the lowest is evicted first; 0:
                               requests.priority of the configuration */
  uint64_t priority_ms; /* unused blocks keep the priority for so long; 0: forever. Needs requests.retention */
  /* Unused blocks are dropped after so long; 0: requests.time_to_live. Needs requests.retention. */
  uint64_t time_to_live_ms;
  const char* tenant; /* one of requests.tenants, whose quota the saved blocks count for; NULL: no quota */
  uint32_t hint;      /* cairn_hint; applied when the request has ended. Needs requests.retention */
  uint64_t hint_return_ms;
  /* The engine's own digests of the full blocks of the prompt, one after the other: required if model.scheme is vllm, sglang or
   * router, and NULL otherwise. */
  const uint8_t* block_digests;
  size_t block_digest_count;
  size_t digest_size; /* bytes of each: 16 to 32 for vllm and sglang, 8 (little-endian) for router */
  /* The data parallel rank that the request is for; it is refused if the scheduler is of another one. NULL: not said. */
  const uint32_t* dp_rank;
} cairn_new_request;
/* Adds a request. Returns CAIRN_ALREADY_EXISTS if the id names a request that is not released yet. */
CAIRN_API int32_t cairn_scheduler_add(cairn_scheduler* scheduler, const cairn_new_request* request,
                                      cairn_request* handle, cairn_error* error);
/* Returns the handle of a request; 0 if there is no request of that id, or memory ran out. */
CAIRN_API cairn_request cairn_scheduler_find(const cairn_scheduler* scheduler, const char* id);

typedef enum cairn_when {
  CAIRN_NOW = 0,   /* nothing is to be loaded, or it is loaded in the iteration that schedules the request */
  CAIRN_LATER = 1, /* the request must wait until take_outcomes reports its load */
  /* Too much is being loaded: leave the request in the queue and match again in the next iteration. */
  CAIRN_ASK_AGAIN = 2
} cairn_when;
/* Looks up how many tokens of the request the tiers have beyond its first local_tokens, which the engine has in its own prefix
 * cache. *tokens is set to that number (a multiple of the block size), *when to a cairn_when. May be called again; the latest
 * call counts. */
CAIRN_API int32_t cairn_scheduler_match(cairn_scheduler* scheduler, cairn_request request, size_t local_tokens,
                                        size_t* tokens, int32_t* when, cairn_error* error);
/* Tells Cairn which device blocks the engine allocated for the request, from its first token on. `blocks` are block ids of
 * the engine. The first local_tokens are in them already. loaded_tokens are to be loaded after those: 0, what match returned,
 * or fewer whole blocks. The load starts with the next metadata.
 * Returns CAIRN_INVALID_ARGUMENT if a block is listed twice. A block that another live request has is refused by the next
 * build, which knows which requests were preempted; blocks that local_tokens fill may be shared. */
CAIRN_API int32_t cairn_scheduler_allocated(cairn_scheduler* scheduler, cairn_request request, const uint32_t* blocks,
                                            size_t block_count, size_t local_tokens, size_t loaded_tokens,
                                            cairn_error* error);
/* In the table of a layer group that is not full: there is no block. */
#define CAIRN_NO_BLOCK UINT32_MAX
/* The same for a model with layer groups (model.groups): `blocks` are those of the first group, then those of the next, and
 * so on; block_counts[i] of the group i. loaded_tokens is 0 or what match returned. Blocks that are to be loaded must be
 * there; others of a group that is not full may be CAIRN_NO_BLOCK. */
CAIRN_API int32_t cairn_scheduler_allocated_groups(cairn_scheduler* scheduler, cairn_request request,
                                                   const uint32_t* blocks, const size_t* block_counts,
                                                   size_t group_count, size_t local_tokens, size_t loaded_tokens,
                                                   cairn_error* error);

/* A request that runs in an iteration. */
typedef struct cairn_scheduled {
  size_t struct_size;
  cairn_request request;
  size_t computed_tokens;     /* tokens whose KV is on the device before this iteration: computed by earlier iterations,
                                  loaded, or from the engine's own cache. Lower than before: the engine computes them again */
  const uint32_t* new_tokens; /* tokens that the request got since it was last scheduled; not the prompt */
  size_t new_token_count;
  const uint32_t* new_blocks; /* device blocks that it got since then */
  size_t new_block_count;
  const uint32_t* draft_tokens; /* speculative decoding: tokens that this iteration computes and verifies */
  size_t draft_token_count;
  size_t accepted_draft_tokens;    /* how many draft tokens of the last iteration were accepted; not among new_tokens */
  const cairn_mm_run* new_mm_runs; /* multimodal items among new_tokens; offsets count from the start of the request */
  size_t new_mm_run_count;
  /* Tokens that this iteration computes, draft tokens included; 0: all that the request has. Must be given if tokens are
   * scheduled before they are known (asynchronous scheduling). */
  size_t scheduled_tokens;
  const uint8_t* new_block_digests; /* digests of full blocks that had none so far, as in cairn_new_request */
  size_t new_block_digest_count;
  size_t digest_size;
  /* In a model with layer groups: how many of new_blocks belong to each group, as in cairn_scheduler_allocated_groups().
   * Blocks of sliding and chunked groups that no token after computed_tokens needs are the engine's again. */
  const size_t* new_group_block_counts;
  size_t group_count;
} cairn_scheduled;

typedef struct cairn_iteration {
  size_t struct_size;
  uint64_t number;                /* the engine's iteration counter: higher than that of the last build */
  const cairn_request* preempted; /* requests that lose all of their device blocks, before anything else happens */
  size_t preempted_count;
  const cairn_scheduled* scheduled; /* requests that run in this iteration */
  size_t scheduled_count;
  /* How long the engine took to compute an earlier iteration, if it measures that; 0: the time between two builds counts. Loads
   * are weighed against the engine's speed. */
  uint64_t duration_ns;
  uint64_t duration_of; /* the number of that iteration; 0: the last one */
} cairn_iteration;

/* Makes the metadata of an iteration, which the engine passes to every worker unchanged. *metadata stays valid until the next
 * build. If a request's numbers contradict each other, it continues without a cache and is among the refusals; the build
 * succeeds. Returns CAIRN_EXHAUSTED if memory runs out: the scheduled requests continue without a cache, nothing else is lost;
 * build again with the same number. */
CAIRN_API int32_t cairn_scheduler_build(cairn_scheduler* scheduler, const cairn_iteration* iteration,
                                        const uint8_t** metadata, size_t* metadata_size, cairn_error* error);

typedef struct cairn_refused {
  cairn_request request;
  int32_t code;        /* cairn_code */
  const char* message; /* valid until the next build */
} cairn_refused;
typedef struct cairn_refusals {
  size_t struct_size;
  const cairn_refused* refused;
  size_t refused_count;
  size_t refused_stride;
} cairn_refusals;
/* The requests that the last build could not serve, and why. */
CAIRN_API int32_t cairn_scheduler_get_refusals(cairn_scheduler* scheduler, cairn_refusals* refusals,
                                               cairn_error* error);

/* The request ended or was aborted. computed_tokens, as in cairn_scheduled, reports what its last iteration computed: full
 * blocks of it are saved. CAIRN_NOT_SAID: nothing more is saved. *held is set to 1 if copies still use its device blocks: the
 * engine must not reuse them until take_outcomes lists the request as released, and must keep building iterations while
 * cairn_scheduler_has_work(). If *held is 0, the request is gone. */
#define CAIRN_NOT_SAID SIZE_MAX
CAIRN_API int32_t cairn_scheduler_finish(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                                         uint32_t* held, cairn_error* error);
/* The same of a request that ended as `ending`, a cairn_ending, says. */
CAIRN_API int32_t cairn_scheduler_finish_as(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                                            uint32_t ending, uint32_t* held, cairn_error* error);

/* What became of tokens. All but `requests` are numbers of tokens. A prompt is counted once, when its request first runs or
 * its load has ended. These hold at any time:
 *   asked = device + loaded_host + loaded_disk + computed
 *   found_host + found_disk = loaded_host + loaded_disk + too_slow + failed + skipped
 *   lost = kept + reloaded + recomputed */
typedef struct cairn_token_counts {
  size_t struct_size;
  uint64_t requests;            /* requests that are counted here */
  uint64_t asked;               /* tokens of the prompts */
  uint64_t device;              /* in the engine's own prefix cache */
  uint64_t found_host;          /* beyond those, in the tiers, by the nearest tier */
  uint64_t found_disk;          /* */
  uint64_t loaded_host;         /* loaded, by the tier that they came from */
  uint64_t loaded_disk;         /* */
  uint64_t too_slow;            /* found, and faster to compute than to load */
  uint64_t failed;              /* to be loaded, but the load did not bring them */
  uint64_t skipped;             /* found, and not loaded for another reason: limits, or the engine's choice */
  uint64_t computed;            /* left to the engine to compute */
  uint64_t lost;                /* no longer on the device, after a preemption or a load that failed */
  uint64_t kept;                /* of those, in the engine's own prefix cache when the request ran again */
  uint64_t reloaded;            /* of those, loaded */
  uint64_t recomputed;          /* of those, left to the engine to compute again */
  uint64_t loaded_late;         /* not lost, and loaded after the request had run */
  uint64_t saved;               /* of saves that have ended, in whole blocks */
  uint64_t dropped_filtered;    /* not saved: admission did not want them */
  uint64_t dropped_shed;        /* the queue was full, or the tier had no room */
  uint64_t dropped_unavailable; /* offloading was paused, or a tier out of use */
  uint64_t dropped_failed;      /* the transfer failed, was cancelled or expired, or a reset came */
} cairn_token_counts;
/* The counts of a request so far. When it is gone, take_outcomes has them. */
CAIRN_API int32_t cairn_scheduler_get_request_counts(const cairn_scheduler* scheduler, cairn_request request,
                                                     cairn_token_counts* counts, cairn_error* error);
typedef enum cairn_counts_of {
  CAIRN_COUNTS_TOTAL = 0,
  CAIRN_COUNTS_LAST_REQUESTS = 1, /* the last requests.window_requests requests */
  CAIRN_COUNTS_LAST_TIME = 2      /* the last requests.window_time */
} cairn_counts_of;
/* [any] The counts of all requests. `which`: a cairn_counts_of. `tenant`: NULL for all; with CAIRN_COUNTS_TOTAL one of
 * requests.tenants, or "" for requests that name none. */
CAIRN_API int32_t cairn_scheduler_get_counts(const cairn_scheduler* scheduler, uint32_t which, const char* tenant,
                                             cairn_token_counts* counts, cairn_error* error);

typedef struct cairn_loaded {
  cairn_request request;
  size_t tokens;  /* tokens whose KV is on the device now, from the first on */
  size_t missing; /* tokens whose load failed: the engine computes them */
} cairn_loaded;
typedef struct cairn_ended {
  cairn_request request;
  cairn_token_counts counts;
} cairn_ended;
typedef struct cairn_outcomes {
  size_t struct_size;
  const cairn_loaded* loaded; /* requests whose load has ended: they can be scheduled */
  size_t loaded_count;
  const char* const* released; /* ids of finished requests whose device blocks can be reused */
  size_t released_count;
  size_t loaded_stride;
  const cairn_ended* ended; /* requests that are gone, whether finish said so or they were released */
  size_t ended_count;
  size_t ended_stride;
} cairn_outcomes;
/* What happened since the last call. */
CAIRN_API int32_t cairn_scheduler_take_outcomes(cairn_scheduler* scheduler, cairn_outcomes* outcomes,
                                                cairn_error* error);
/* Returns 1 while loads or saves are in flight or wait for the next metadata, or outcomes can be taken: the engine should build
 * iterations, even without requests to run. */
CAIRN_API uint32_t cairn_scheduler_has_work(const cairn_scheduler* scheduler);

/* What became of the blocks that were to be saved, since the scheduler was created. `asked` is the sum of the others once all
 * saves have ended. */
typedef struct cairn_save_status {
  size_t struct_size;
  uint64_t asked;
  uint64_t saved;  /* in a tier when the save ended */
  uint64_t shed;   /* the queue was full of more valuable blocks */
  uint64_t paused; /* offloading was paused or had ended */
  uint64_t lost;   /* accepted and not saved; "refused" in the status of the manager says why */
  /* Rejected by a filter. */
  uint64_t too_short;      /* offload.*.least_blocks */
  uint64_t too_few_uses;   /* least_uses */
  uint64_t would_not_last; /* least_chance */
  uint64_t over_budget;    /* bytes_per_day */
  uint64_t low_priority;   /* least_priority */
  uint64_t filtered;       /* the offload filter of the options */
  uint64_t no_parent;      /* the block before it in its sequence was rejected, or is in no tier any more */
} cairn_save_status;
/* [any] */
CAIRN_API int32_t cairn_scheduler_saves(const cairn_scheduler* scheduler, cairn_save_status* status,
                                        cairn_error* error);
/* As cairn_manager_reset_all(). Requests that were added before are no longer saved. */
CAIRN_API int32_t cairn_scheduler_reset(cairn_scheduler* scheduler, cairn_reset_report* report, cairn_error* error);
/* As cairn_manager_invalidate(): the engine has new weights. */
CAIRN_API int32_t cairn_scheduler_invalidate(cairn_scheduler* scheduler, uint64_t weights_generation,
                                             cairn_reset_report* report, cairn_error* error);

/* ------------------------------------------------------ connector: worker */

typedef struct cairn_worker cairn_worker;

typedef enum cairn_memory { CAIRN_MEMORY_SYSTEM = 0, CAIRN_MEMORY_PINNED = 1, CAIRN_MEMORY_DEVICE = 2 } cairn_memory;
/* What an axis of a tensor runs over. */
typedef enum cairn_axis {
  CAIRN_AXIS_BLOCK = 0,
  CAIRN_AXIS_LAYER = 1,
  CAIRN_AXIS_KV = 2, /* K, then V */
  CAIRN_AXIS_TOKEN = 3,
  CAIRN_AXIS_FLAT_TOKEN = 4, /* the tokens of all blocks one after the other, in place of BLOCK and TOKEN */
  CAIRN_AXIS_HEAD = 5,
  CAIRN_AXIS_ELEMENT = 6
} cairn_axis;

/* A KV tensor of the engine. Cairn copies from and to it in place. */
typedef struct cairn_tensor {
  size_t struct_size;
  void* base;           /* the first element */
  uint64_t bytes;       /* size of the memory from there on */
  uint32_t memory;      /* cairn_memory */
  int32_t device;       /* the GPU of device or pinned memory, as CUDA numbers it; ignored for system memory */
  uint32_t rank;        /* number of axes */
  const uint32_t* axes; /* cairn_axis of each, outermost first */
  const uint64_t* sizes;
  const int64_t* strides; /* in elements */
} cairn_tensor;

/* Layers of one shape on one GPU. All groups of a worker have the same number of blocks. */
typedef struct cairn_group {
  size_t struct_size;
  const char* name;          /* for error messages */
  const char* const* layers; /* names of the layers, in the order of the tensors */
  size_t layer_count;
  const cairn_tensor* tensors; /* one for each layer; or two, K before V; or one for all layers */
  size_t tensor_count;
  uint32_t element_bits;
  uint32_t page_size; /* tokens of a block */
} cairn_group;

typedef struct cairn_worker_options {
  size_t struct_size;
  uint32_t rank;              /* which worker this is, from 0 on */
  uint32_t ranks;             /* number of workers; 0: 1 */
  const char* leader;         /* the address of the scheduler, */
  cairn_scheduler* scheduler; /* or the scheduler, if it is in this process; not both */
  const char* secret;         /* as in cairn_scheduler_options */
  uint64_t fence_limit_ms;    /* longest wait of bind; 0: 200 */
  uint64_t layer_limit_ms;    /* longest wait of wait_for_layer and take_outcomes; 0: 10000 */
  uint64_t answer_limit_ms;   /* a load or save without an outcome for so long counts as failed; 0: 120000 */
  uint64_t
      first_connection_ms; /* longest wait of create for the scheduler, without the time for memory and a file, its own
                                 * or of a rank that is first, up to 10 minutes each; 0: 60000 */
  const cairn_group* groups;
  size_t group_count;
  const char* const* layers; /* names of all layers of this worker, as the model computes them; numbered from 0 */
  size_t layer_count;
  uint32_t pipeline;    /* as in cairn_scheduler_options. Worker number = stage x (ranks / pipeline) + tensor rank */
  uint32_t first_layer; /* number in the model of layers[0]; 0 in a later stage: the layers are dealt evenly */
} cairn_worker_options;

/* [any] Registers the engine's tensors and connects to the scheduler. The tensors must outlive the worker. */
CAIRN_API int32_t cairn_worker_create(const cairn_worker_options* options, cairn_worker** worker, cairn_error* error);
CAIRN_API void cairn_worker_destroy(cairn_worker* worker); /* [one] */

/* All functions below are [one]: the thread of the engine's worker, in the order of a step. A call out of order returns
 * CAIRN_FAILED_PRECONDITION. `event` is a CUevent that the engine recorded on its stream, on the GPU of its first device
 * tensor, in the primary context; NULL if its work is already done. An event must stay valid as long as the
 * worker. An event that is recorded again is waited for again, so a few events used in turn are enough. */

/* Begins the step of an iteration with the metadata of cairn_scheduler_build(). Waits for saves of blocks that this step writes
 * to, at most fence_limit_ms; saves that have not ended by then fail. If it fails with CAIRN_EXHAUSTED or CAIRN_UNAVAILABLE, bind
 * the same metadata again before the step computes. */
CAIRN_API int32_t cairn_worker_bind(cairn_worker* worker, const uint8_t* metadata, size_t size, cairn_error* error);
/* Loads may write to their device blocks once `event` has ended. */
CAIRN_API int32_t cairn_worker_start_load(cairn_worker* worker, void* event, cairn_error* error);
/* Call before computing a layer, with CAIRN_LOAD_IN_STEP. Waits until that layer of all loads of this step is loaded, at most
 * layer_limit_ms. If it fails, continue: take_outcomes names the blocks that must not be used. */
CAIRN_API int32_t cairn_worker_wait_for_layer(cairn_worker* worker, uint32_t layer, cairn_error* error);
/* The layer is computed once `event` has ended. Call once for each layer, or cairn_worker_save_step() for all of them. */
CAIRN_API int32_t cairn_worker_save_layer(cairn_worker* worker, uint32_t layer, void* event, cairn_error* error);
/* All layers of the step are computed once `event` has ended. */
CAIRN_API int32_t cairn_worker_save_step(cairn_worker* worker, void* event, cairn_error* error);

typedef struct cairn_worker_loaded {
  const char* request; /* id */
  uint32_t whole;      /* 1: all blocks of the load were loaded */
} cairn_worker_loaded;
typedef struct cairn_worker_outcomes {
  size_t struct_size;
  const cairn_worker_loaded* loaded; /* requests whose load has ended */
  size_t loaded_count;
  const char* const* saved; /* ids of requests of which a save has ended, saved or not */
  size_t saved_count;
  const uint32_t* failed_blocks; /* device blocks whose content must not be used: compute them again */
  size_t failed_block_count;
  size_t loaded_stride;
} cairn_worker_outcomes;
/* Ends the step, and returns the loads and saves that have ended since the last call. Waits for the loads of this step that were
 * read layer by layer, at most layer_limit_ms. All workers report the same. */
CAIRN_API int32_t cairn_worker_take_outcomes(cairn_worker* worker, cairn_worker_outcomes* outcomes, cairn_error* error);

typedef struct cairn_worker_state {
  size_t struct_size;
  uint32_t is_connected; /* 1: to the scheduler */
  uint32_t generation;   /* number of the connection */
  uint32_t transfers;    /* in flight */
  uint64_t done;         /* blocks copied */
  uint64_t failed;       /* blocks whose copy failed */
} cairn_worker_state;
CAIRN_API int32_t cairn_worker_get_state(const cairn_worker* worker, cairn_worker_state* state); /* [any] */

#ifdef __cplusplus
}
#endif

#endif /* CAIRN_CAIRN_C_H_ */
