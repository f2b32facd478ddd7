/* Cairn's C interface: manager, connector, events and metrics, for every language that can call C.
 *
 * Handles     are opaque. What a *_create() gives is the caller's until the *_destroy() of the same name; NULL may be
 *             destroyed. A handle that another one gives (cairn_scheduler_manager) is borrowed and dies with it.
 * Structs     begin with struct_size: set it to sizeof the struct (CAIRN_INIT does). Later versions add members at the end;
 *             members that the caller's struct_size does not reach have their defaults, which are what zeros mean.
 * Errors      are codes; a cairn_error that was passed in says more. Nothing is thrown. What failed has changed nothing, and
 *             memory that is not to be had is CAIRN_EXHAUSTED: the call can be made again. (cairn_scheduler_build says what
 *             that means for its requests.) Functions without a code say what they give then.
 * Texts       that are given out are copied into the caller's buffer, with a 0 at the end, cut off where it is too small;
 *             *needed is the bytes that all of it takes, 0 if there is no memory to make it. Texts that are passed in are UTF-8 that ends with a 0 and are copied.
 * Arrays      that are passed in are read during the call only; elements that begin with struct_size are as far apart as that
 *             of the first one says. Arrays that are given out stay until the next call that gives out the same kind on the
 *             same handle. Structs in them may grow: the bytes from one to the next are in the member *_stride, and
 *             CAIRN_AT() finds an element. Where a stride is below sizeof the struct, the library is older than this header
 *             and does not have the last members.
 * Threads     are said at each function: [any] from any thread at any time; [one] one thread at a time for the handle.
 * Versions    CAIRN_API_VERSION is what this header says, cairn_api_version() what the library has. A library serves
 *             every header of its own version and of those before it.
 */
#ifndef CAIRN_CAIRN_H_
#define CAIRN_CAIRN_H_

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
/* Element i of an array that was given out: CAIRN_AT(cairn_loaded, results.loaded, results.loaded_stride, i)->tokens */
#define CAIRN_AT(type, first, stride, i) ((const type*)(const void*)((const char*)(first) + (size_t)(i) * (stride)))

CAIRN_API uint32_t cairn_api_version(void); /* [any] */
CAIRN_API const char* cairn_version(void);  /* [any] "0.1.0"; never freed */

/* ------------------------------------------------------------------ errors */

typedef enum cairn_code {
  CAIRN_OK = 0,
  CAIRN_INVALID_ARGUMENT = 1,    /* the input is wrong: fix the call */
  CAIRN_FAILED_PRECONDITION = 2, /* the input is fine, the object is not in a state for it */
  CAIRN_NOT_FOUND = 3,
  CAIRN_ALREADY_EXISTS = 4,
  CAIRN_EXHAUSTED = 5, /* a capacity is used up: try again after something is released */
  CAIRN_OUT_OF_RANGE = 6,
  CAIRN_CORRUPT = 7,     /* bytes from outside do not add up */
  CAIRN_UNAVAILABLE = 8, /* a device, a peer or a system facility is not there */
  CAIRN_IO = 9,
  CAIRN_EXPIRED = 10,
  CAIRN_CANCELLED = 11
} cairn_code;

typedef struct cairn_error {
  size_t struct_size;
  int32_t code;       /* cairn_code */
  char message[1024]; /* what happened, to what, and what to do; ends with a 0 */
} cairn_error;

CAIRN_API const char* cairn_code_name(int32_t code); /* [any] "invalid_argument"; "unknown" for others; never freed */

/* -------------------------------------------------------------------- keys */

/* The name of a block: all tokens up to its end. */
typedef struct cairn_key {
  uint64_t high;
  uint64_t low;
} cairn_key;

/* The placeholder tokens of one multimodal item (an image, a clip). Their ids mean nothing: the keys of their blocks are made of
 * the item's hash and the place inside the item. */
typedef struct cairn_mm_run {
  size_t struct_size;
  uint64_t item_hash;   /* of the item's content: the same item, the same hash */
  uint64_t offset;      /* of the run's first token, from the start of the request */
  uint32_t length;      /* tokens */
  uint32_t item_offset; /* placeholders of the same item before this run; 0 unless the item was cut in two */
} cairn_mm_run;

/* Tokens, and what else their keys are made of. */
typedef struct cairn_prompt {
  size_t struct_size;
  const uint32_t* tokens;
  size_t token_count;
  const char* salt; /* of a tenant or a conversation: requests with different salts share nothing; NULL or "": none */
  const char* lora_name;       /* of an adapter, which separates requests too; NULL or "": none */
  const cairn_mm_run* mm_runs; /* in any order; they do not overlap */
  size_t mm_run_count;
} cairn_prompt;

/* ----------------------------------------------------------------- manager */

/* Device, host, disk. Functions take them as numbers, as all of their like: one that is none is an error, not a surprise. */
typedef enum cairn_level { CAIRN_G1 = 0, CAIRN_G2 = 1, CAIRN_G3 = 2 } cairn_level;

typedef struct cairn_manager cairn_manager;
typedef struct cairn_blocks cairn_blocks; /* a run of blocks of one tier: being filled, or registered and in use */

typedef struct cairn_manager_options {
  size_t struct_size;
  const char* config;       /* TOML text; NULL: defaults */
  const char* config_file;  /* or a file; one of the two at most */
  uint32_t use_environment; /* 1: CAIRN_* variables go over it */
} cairn_manager_options;

/* [any] */
CAIRN_API int32_t cairn_manager_create(const cairn_manager_options* options, cairn_manager** manager,
                                       cairn_error* error);
/* [one] All blocks are released before. Stops in order: waits for what is under way as long as the configuration says. */
CAIRN_API void cairn_manager_destroy(cairn_manager* manager);

CAIRN_API uint32_t cairn_manager_block_size(const cairn_manager* manager); /* [any] tokens */

/* [any] The keys of the full blocks of the prompt, as model.scheme of this manager makes them; another manager makes others,
 * unless both have the same model.secret, tenant and model. `keys` has room for token_count / block size; *count: how many.
 * CAIRN_FAILED_PRECONDITION: keys of the scheme are not made from tokens (vllm, sglang, router). */
CAIRN_API int32_t cairn_manager_hash_prompt(const cairn_manager* manager, const cairn_prompt* prompt, cairn_key* keys,
                                            size_t* count, cairn_error* error);

/* [any] How many keys from the first on are cached, and in `levels` (NULL, or room for `count`) where. Takes nothing. */
CAIRN_API int32_t cairn_manager_locate(const cairn_manager* manager, const cairn_key* keys, size_t count,
                                       uint8_t* levels, size_t* found, cairn_error* error);
/* [any] Blocks of a tier to be filled. CAIRN_EXHAUSTED: all are in use. */
CAIRN_API int32_t cairn_manager_allocate(cairn_manager* manager, uint32_t level, uint32_t count, cairn_blocks** blocks,
                                         cairn_error* error);
/* [one, for the blocks] They hold what the keys name, one key for each. From now on others find them. */
CAIRN_API int32_t cairn_blocks_register(cairn_blocks* blocks, const cairn_key* keys, size_t count, cairn_error* error);
/* [any] The longest prefix that the tier has, in use until it is released. *blocks is NULL where there is none. */
CAIRN_API int32_t cairn_manager_match(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                      cairn_blocks** blocks, cairn_error* error);
/* [any, but no callback of Cairn] The longest prefix over all tiers, on the device; waits until it is there, deadline_ms at
 * most (0: as the configuration says). *blocks is NULL where there is none. If memory runs out, the call fails with
 * CAIRN_EXHAUSTED or gives a shorter prefix. */
CAIRN_API int32_t cairn_manager_load(cairn_manager* manager, const cairn_key* keys, size_t count, uint64_t deadline_ms,
                                     cairn_blocks** blocks, cairn_error* error);
CAIRN_API size_t cairn_blocks_count(const cairn_blocks* blocks); /* [one, for the blocks] of NULL: 0 */
/* [one, for the blocks] Their numbers in the tier, as many as there are. */
CAIRN_API void cairn_blocks_ids(const cairn_blocks* blocks, uint32_t* block_ids);
/* [one, for the blocks] Nobody uses them any more: registered ones stay cached, others are free. NULL: nothing. */
CAIRN_API void cairn_blocks_release(cairn_blocks* blocks);
/* [any] Where the row of a block lies. Memory of a GPU has an address there. CAIRN_FAILED_PRECONDITION: a file. */
CAIRN_API int32_t cairn_manager_address(const cairn_manager* manager, uint32_t level, uint32_t block_id, uint32_t layer,
                                        uint32_t k_or_v, uint32_t token, uint32_t head, void** address,
                                        cairn_error* error);

/* What a reset did. */
typedef struct cairn_reset_report {
  size_t struct_size;
  uint32_t reset;  /* blocks that nobody used */
  uint32_t in_use; /* blocks that stay with their holders, and that nobody else finds */
  uint64_t copies; /* blocks in flight into the tiers: they are not stored there */
  uint32_t loads;  /* loads in flight that end without blocks */
} cairn_reset_report;

/* [any] A fence over one tier: what was stored in it is not found there again, here, after a restart or after a loss of
 * power. Blocks in use stay with their holders. *count (or NULL): how many blocks were dropped. CAIRN_IO: the reset holds in
 * this process, but the file could not be written, and blocks may be found after a restart. */
CAIRN_API int32_t cairn_manager_reset(cairn_manager* manager, uint32_t level, uint32_t* count, cairn_error* error);
/* [any] The same as one fence over all tiers and all copies in flight. `report`: NULL, or filled. */
CAIRN_API int32_t cairn_manager_reset_all(cairn_manager* manager, cairn_reset_report* report, cairn_error* error);
/* [any] The same when the weights of the model have changed: what is stored from now on is of this generation, which has to
 * be higher than the present one (CAIRN_INVALID_ARGUMENT). The configuration of the next start has it too. */
CAIRN_API int32_t cairn_manager_invalidate(cairn_manager* manager, uint64_t weights_generation,
                                           cairn_reset_report* report, cairn_error* error);
/* [any] Waits until nothing is under way. CAIRN_EXPIRED: it still is. */
CAIRN_API int32_t cairn_manager_drain(cairn_manager* manager, uint64_t longest_ms, cairn_error* error);
CAIRN_API int32_t cairn_manager_pause(cairn_manager* manager, uint32_t from, uint32_t to, uint32_t paused,
                                      cairn_error* error); /* [any] one edge */
CAIRN_API int32_t cairn_manager_resize_host(cairn_manager* manager, uint32_t blocks, cairn_error* error); /* [any] */

/* [any] What an operator sees, as JSON. */
CAIRN_API size_t cairn_manager_status(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);
/* [any] For Prometheus, text format 0.0.4. */
CAIRN_API size_t cairn_manager_metrics(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed);

/* ------------------------------------------------------------------ events */

/* Follows what is cached where, without gaps: begins with a snapshot, goes on with every change, and begins anew with a
 * snapshot where it fell too far behind. A snapshot is events too, all of one number: for each tier that it is cleared, what
 * is stored in it, and whether it is suspended or resumed. */
typedef struct cairn_events cairn_events;

/* [any] CAIRN_FAILED_PRECONDITION: its event log is off. Once the manager is destroyed, cairn_events_next() fails with
 * CAIRN_UNAVAILABLE; the events are destroyed as always. */
CAIRN_API int32_t cairn_events_create(const cairn_manager* manager, cairn_events** events, cairn_error* error);
CAIRN_API void cairn_events_destroy(cairn_events* events); /* [one] */
/* [one] What happened since the last call, as lines of JSON, one an event, at most about max_blocks blocks of them. An empty
 * text: nothing. A text that does not fit stays: call again with *needed bytes. */
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

#endif /* CAIRN_CAIRN_H_ */
