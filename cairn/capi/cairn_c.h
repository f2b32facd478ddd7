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
/* Element i of an array that the library provides: CAIRN_AT(cairn_loaded, results.loaded, results.loaded_stride, i)->tokens */
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
typedef struct cairn_blocks
    cairn_blocks; /* a run of blocks of one tier that the caller holds: they cannot be evicted */

typedef struct cairn_manager_options {
  size_t struct_size;
  const char* config;       /* configuration as TOML text, */
  const char* config_file;  /* or the path of a TOML file; not both. If both are NULL, the defaults apply */
  uint32_t use_environment; /* 1: environment variables CAIRN_* override the configuration */
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
/* [one for the blocks] Registers allocated blocks that the caller has filled, under one key each. From now on lookups find
 * them. The caller still holds them. */
CAIRN_API int32_t cairn_blocks_register(cairn_blocks* blocks, const cairn_key* keys, size_t count, cairn_error* error);
/* [any] Looks up the longest prefix that one tier has, and holds it. *blocks is set to NULL if the first key is not there. */
CAIRN_API int32_t cairn_manager_match(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                      cairn_blocks** blocks, cairn_error* error);
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

/* [any] The state of the manager as JSON: tiers, links, loads, incidents (docs/manager.md lists the members). As for every text,
 * the return value is the number of bytes written. */
CAIRN_API size_t cairn_manager_status(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);
/* [any] Counters and gauges in the text format of Prometheus, version 0.0.4. */
CAIRN_API size_t cairn_manager_metrics(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);

/* ------------------------------------------------------------------ events */

/* A subscription to what is cached where, without gaps. It begins with a snapshot and continues with every change; if the
 * subscriber falls too far behind, it gets a new snapshot. A snapshot is told as events that share one sequence number: for
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

typedef struct cairn_scheduler cairn_scheduler;
typedef uint64_t cairn_request; /* names a request of one scheduler; never used again; 0 is none */

typedef enum cairn_load_mode { CAIRN_LOAD_ASYNC = 0, CAIRN_LOAD_IN_STEP = 1 } cairn_load_mode;

typedef struct cairn_scheduler_options {
  size_t struct_size;
  const char* config;      /* TOML: [model] of the whole engine, sizes of all ranks together */
  const char* config_file; /* or a file */
  uint32_t use_environment;
  uint32_t device_blocks;  /* that the engine has */
  uint32_t ranks;          /* 0: 1 */
  const char* address;     /* "unix:/path" or "tcp:host:port"; NULL: all ranks are of this process */
  const char* secret;      /* TCP needs one */
  uint32_t load_mode;      /* cairn_load_mode */
  uint32_t loading_blocks; /* at once; 0: the default, as for all that follow */
  uint32_t least_blocks;
  uint32_t ask_again;
  uint64_t load_deadline_ms;
  uint64_t save_deadline_ms;
} cairn_scheduler_options;

/* [any] */
CAIRN_API int32_t cairn_scheduler_create(const cairn_scheduler_options* options, cairn_scheduler** scheduler,
                                         cairn_error* error);
/* [one] Workers of this process are destroyed before. */
CAIRN_API void cairn_scheduler_destroy(cairn_scheduler* scheduler);
/* [any] For locate, status, metrics, events and control; borrowed, not destroyed. */
CAIRN_API cairn_manager* cairn_scheduler_manager(cairn_scheduler* scheduler);
/* [any] Where it listens, the port filled in. */
CAIRN_API size_t cairn_scheduler_address(const cairn_scheduler* scheduler, char* buffer, size_t capacity,
                                         size_t* needed);
/* [any] Waits until all ranks are there. */
CAIRN_API int32_t cairn_scheduler_wait_for_ranks(cairn_scheduler* scheduler, uint64_t longest_ms, cairn_error* error);

/* All that follow: [one], the engine's scheduler. None waits for a copy. */

/* A request with its prompt, multimodal items included. */
CAIRN_API int32_t cairn_scheduler_add_prompt(cairn_scheduler* scheduler, const char* id, const cairn_prompt* prompt,
                                             cairn_request* request, cairn_error* error);
/* The same of text alone. Two images behind the same placeholder tokens would have the same keys: use
 * cairn_scheduler_add_prompt() for them. `salt` and `lora_name` as in a prompt. */
CAIRN_API int32_t cairn_scheduler_add(cairn_scheduler* scheduler, const char* id, const uint32_t* tokens,
                                      size_t token_count, const char* salt, const char* lora_name,
                                      cairn_request* request, cairn_error* error);
/* 0: there is none of that id, or no memory to look it up. */
CAIRN_API cairn_request cairn_scheduler_find(const cairn_scheduler* scheduler, const char* id);

typedef enum cairn_when { CAIRN_NOW = 0, CAIRN_LATER = 1, CAIRN_ASK_AGAIN = 2 } cairn_when;
/* How many tokens tiers have beyond the engine's own; *when: whether it has to wait for them (cairn_when). */
CAIRN_API int32_t cairn_scheduler_match(cairn_scheduler* scheduler, cairn_request request, size_t local_tokens,
                                        size_t* tokens, int32_t* when, cairn_error* error);
/* The engine's blocks for the request, from its first token on: local_tokens are in them already, loaded_tokens are to be
 * loaded. CAIRN_INVALID_ARGUMENT: a block is listed twice. A block that another live request has is found by the next build,
 * which knows who was preempted, and refused there; blocks that local_tokens fill may be shared. */
CAIRN_API int32_t cairn_scheduler_allocated(cairn_scheduler* scheduler, cairn_request request, const uint32_t* blocks,
                                            size_t block_count, size_t local_tokens, size_t loaded_tokens,
                                            cairn_error* error);

typedef struct cairn_scheduled {
  size_t struct_size;
  cairn_request request;
  /* Tokens whose KV is on the device when the iteration begins: before it, not after it. At most what earlier iterations
   * scheduled; in the first one, what was loaded and what match or allocated said of the engine's own cache. */
  size_t computed_tokens;
  const uint32_t* new_tokens;
  size_t new_token_count;
  const uint32_t* new_blocks;
  size_t new_block_count;
  const uint32_t* guesses;
  size_t guess_count;
  size_t accepted_guesses;
  const cairn_mm_run* new_mm_runs; /* among new_tokens; offsets from the start of the request */
  size_t new_mm_run_count;
  size_t
      scheduled_tokens; /* that this iteration computes, guesses included; 0: all that the request has. An engine that
                            * schedules tokens before they are known has to say it. */
} cairn_scheduled;

typedef struct cairn_iteration {
  size_t struct_size;
  uint64_t number;
  const cairn_request* preempted;
  size_t preempted_count;
  const cairn_scheduled* scheduled; /* an array of structs of scheduled[0].struct_size bytes each */
  size_t scheduled_count;
} cairn_iteration;

/* The metadata of an iteration, for every worker; in *metadata until the next call. CAIRN_EXHAUSTED: no memory; build it again,
 * with the same number. The requests that it schedules go on without a cache; nothing else is lost. */
CAIRN_API int32_t cairn_scheduler_build(cairn_scheduler* scheduler, const cairn_iteration* iteration,
                                        const uint8_t** metadata, size_t* metadata_size, cairn_error* error);

typedef struct cairn_refused {
  cairn_request request;
  int32_t code;
  const char* message;
} cairn_refused;
typedef struct cairn_refusals {
  size_t struct_size;
  const cairn_refused* refused;
  size_t refused_count;
  size_t refused_stride;
} cairn_refusals;
/* What the last build could not do, request by request; those go on without a cache. */
CAIRN_API int32_t cairn_scheduler_get_refusals(cairn_scheduler* scheduler, cairn_refusals* refusals,
                                               cairn_error* error);
/* The same as an array of the cairn_refused of version 1 (24 bytes each), which never grows. Gives how many; 0 also if there
 * is no memory for the array. */
CAIRN_API size_t cairn_scheduler_refused(cairn_scheduler* scheduler, const cairn_refused** refused);

/* computed_tokens, from the first on: what the last iterations computed is saved too; CAIRN_NOT_SAID: it is not. What comes
 * of it is in the next metadata: build one while cairn_scheduler_has_work(). *held is 1 where the device blocks must stay as
 * they are until the request is released. */
#define CAIRN_NOT_SAID SIZE_MAX
CAIRN_API int32_t cairn_scheduler_finish(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                                         uint32_t* held, cairn_error* error);

typedef struct cairn_loaded {
  cairn_request request;
  size_t tokens;  /* whose KV is on the device now */
  size_t missing; /* that were to come and did not */
} cairn_loaded;
typedef struct cairn_results {
  size_t struct_size;
  const cairn_loaded* loaded;
  size_t loaded_count;
  const char* const* released; /* ids of finished requests */
  size_t released_count;
  size_t loaded_stride;
} cairn_results;
CAIRN_API int32_t cairn_scheduler_take_results(cairn_scheduler* scheduler, cairn_results* results, cairn_error* error);
CAIRN_API uint32_t cairn_scheduler_has_work(const cairn_scheduler* scheduler);
/* As cairn_manager_reset_all. Requests that were added before are not saved any more. */
CAIRN_API int32_t cairn_scheduler_reset(cairn_scheduler* scheduler, cairn_reset_report* report, cairn_error* error);
/* As cairn_manager_invalidate: the engine has new weights. */
CAIRN_API int32_t cairn_scheduler_invalidate(cairn_scheduler* scheduler, uint64_t weights_generation,
                                             cairn_reset_report* report, cairn_error* error);

/* ------------------------------------------------------ connector: worker */

typedef struct cairn_worker cairn_worker;

typedef enum cairn_memory { CAIRN_MEMORY_SYSTEM = 0, CAIRN_MEMORY_PINNED = 1, CAIRN_MEMORY_DEVICE = 2 } cairn_memory;
typedef enum cairn_axis {
  CAIRN_AXIS_BLOCK = 0,
  CAIRN_AXIS_LAYER = 1,
  CAIRN_AXIS_KV = 2,
  CAIRN_AXIS_TOKEN = 3,
  CAIRN_AXIS_FLAT_TOKEN = 4, /* the tokens of all blocks one after the other */
  CAIRN_AXIS_HEAD = 5,
  CAIRN_AXIS_ELEMENT = 6
} cairn_axis;

typedef struct cairn_tensor {
  size_t struct_size;
  void* base;
  uint64_t bytes;
  uint32_t memory;      /* cairn_memory */
  int32_t device;       /* the GPU; of system memory it says nothing */
  uint32_t rank;        /* dimensions */
  const uint32_t* axes; /* cairn_axis */
  const uint64_t* sizes;
  const int64_t* strides; /* elements */
} cairn_tensor;

typedef struct cairn_group {
  size_t struct_size;
  const char* name;
  const char* const* layers; /* names, in the order of the tensors */
  size_t layer_count;
  const cairn_tensor* tensors;
  size_t tensor_count;
  uint32_t element_bits;
  uint32_t page_size; /* tokens a block */
} cairn_group;

typedef struct cairn_worker_options {
  size_t struct_size;
  uint32_t rank;
  uint32_t ranks;             /* 0: 1 */
  const char* leader;         /* the scheduler's address */
  cairn_scheduler* scheduler; /* or one of this process */
  const char* secret;
  uint64_t fence_limit_ms; /* 0: the default, as for all that follow */
  uint64_t layer_limit_ms;
  uint64_t answer_limit_ms;
  uint64_t first_connection_ms;
  const cairn_group* groups;
  size_t group_count;
  const char* const* layers; /* names in the order in which the model computes them; numbered from 0 */
  size_t layer_count;
} cairn_worker_options;

/* [any] Registers the engine's tensors and joins the leader; the tensors outlive the worker. */
CAIRN_API int32_t cairn_worker_create(const cairn_worker_options* options, cairn_worker** worker, cairn_error* error);
CAIRN_API void cairn_worker_destroy(cairn_worker* worker); /* [one] */

/* All that follow: [one], the engine's worker. `event` is a CUevent that was recorded on the engine's stream, on the GPU of
 * its first tensor there and in its primary context; or NULL: what it stands for is there already. Events stay valid as long
 * as the worker; one that is recorded again is waited for again, so a few that take turns will do. */

/* Waits for saves of blocks that this step writes to, fence_limit_ms at most. CAIRN_EXHAUSTED: no memory; bind the same metadata
 * again before the step computes anything, or saves may read what it writes. */
CAIRN_API int32_t cairn_worker_bind(cairn_worker* worker, const uint8_t* metadata, size_t size, cairn_error* error);
CAIRN_API int32_t cairn_worker_start_load(cairn_worker* worker, void* event, cairn_error* error);
/* Waits until the layer of all loads of this step is there, layer_limit_ms at most. */
CAIRN_API int32_t cairn_worker_wait_for_layer(cairn_worker* worker, uint32_t layer, cairn_error* error);
CAIRN_API int32_t cairn_worker_save_layer(cairn_worker* worker, uint32_t layer, void* event, cairn_error* error);
CAIRN_API int32_t cairn_worker_save_step(cairn_worker* worker, void* event, cairn_error* error);

typedef struct cairn_worker_loaded {
  const char* request;
  uint32_t whole; /* 1: all blocks of the load are there */
} cairn_worker_loaded;
typedef struct cairn_report {
  size_t struct_size;
  const cairn_worker_loaded* loaded;
  size_t loaded_count;
  const char* const* saved; /* requests a save of which is over */
  size_t saved_count;
  const uint32_t* failed_blocks; /* device blocks that hold nothing to be used */
  size_t failed_block_count;
  size_t loaded_stride;
} cairn_report;
CAIRN_API int32_t cairn_worker_take_report(cairn_worker* worker, cairn_report* report, cairn_error* error);

typedef struct cairn_worker_state {
  size_t struct_size;
  uint32_t is_connected;
  uint32_t generation;
  uint32_t copies; /* in hand */
  uint64_t done;   /* blocks */
  uint64_t failed; /* blocks */
} cairn_worker_state;
CAIRN_API int32_t cairn_worker_get_state(const cairn_worker* worker, cairn_worker_state* state); /* [any] */

#ifdef __cplusplus
}
#endif

#endif /* CAIRN_CAIRN_C_H_ */
