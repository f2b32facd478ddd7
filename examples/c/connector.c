/* An engine's scheduler and its one worker in one process. A prompt with an image is computed and saved; the next request that
 * begins with the same tokens and the same image loads it. An engine with a GPU does the same with its own tensors instead of
 * `kv` and with CUDA events instead of NULL. */
#include <string.h>

#include "examples/c/must.h"

enum { kPage = 4, kDeviceBlocks = 32, kLayers = 2, kHeads = 2, kSize = 8, kPrompt = 18 };
enum { kImageAt = 9, kImageTokens = 5, kPlaceholder = 99 }; /* tokens 9 to 13 of the prompt stand for the image */

/* [K/V][block][token][head][element], one tensor a layer, as vLLM has them. */
static float kv[kLayers][2][kDeviceBlocks][kPage][kHeads][kSize];
static const char* const kLayerNames[kLayers] = {"layers.0", "layers.1"};

static const char kConfig[] =
    "block_size = 4\n"
    "[model]\n"
    "name = \"example\"\n"
    "layers = 2\n"
    "heads = 2\n"
    "head_size = 8\n"
    "element_type = \"f32\"\n"
    "[host]\n"
    "blocks = 64\n"
    "[onboard]\n"
    "weigh = false\n"; /* this engine is so small that it computes faster than anything is loaded */

static float value_of(uint32_t layer, uint32_t token) { return (float)(1000 * layer + token + 1); }

/* The model: the keys and values of a token. */
static void compute(const uint32_t* blocks, uint32_t first, uint32_t last) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t token = first; token < last; ++token) {
      for (uint32_t i = 0; i < 2 * kHeads * kSize; ++i) {
        kv[layer][i % 2][blocks[token / kPage]][token % kPage][i / 2 % kHeads][i / 4 % kSize] = value_of(layer, token);
      }
    }
  }
}

static int is_computed(const uint32_t* blocks, uint32_t tokens) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t token = 0; token < tokens; ++token) {
      if (kv[layer][1][blocks[token / kPage]][token % kPage][1][7] != value_of(layer, token)) {
        return 0;
      }
    }
  }
  return 1;
}

static cairn_worker* make_worker(cairn_scheduler* scheduler) {
  static const uint32_t axes[] = {CAIRN_AXIS_KV, CAIRN_AXIS_BLOCK, CAIRN_AXIS_TOKEN, CAIRN_AXIS_HEAD,
                                  CAIRN_AXIS_ELEMENT};
  static const uint64_t sizes[] = {2, kDeviceBlocks, kPage, kHeads, kSize};
  static const int64_t strides[] = {(int64_t)kDeviceBlocks * kPage * kHeads * kSize, kPage * kHeads * kSize,
                                    kHeads * kSize, kSize, 1};
  cairn_tensor tensors[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    tensors[layer] = (cairn_tensor)CAIRN_INIT(cairn_tensor);
    tensors[layer].base = kv[layer];
    tensors[layer].bytes = sizeof kv[layer];
    tensors[layer].memory = CAIRN_MEMORY_SYSTEM;
    tensors[layer].rank = 5;
    tensors[layer].axes = axes;
    tensors[layer].sizes = sizes;
    tensors[layer].strides = strides;
  }
  cairn_group group = CAIRN_INIT(cairn_group);
  group.name = "attention";
  group.layers = kLayerNames;
  group.layer_count = kLayers;
  group.tensors = tensors;
  group.tensor_count = kLayers;
  group.element_bits = 32;
  group.page_size = kPage;
  cairn_worker_options options = CAIRN_INIT(cairn_worker_options);
  options.scheduler = scheduler;
  options.groups = &group;
  options.group_count = 1;
  options.layers = kLayerNames;
  options.layer_count = kLayers;
  cairn_worker* worker = NULL;
  must(cairn_worker_create(&options, &worker, &failure), "create worker");
  return worker;
}

/* One iteration: the scheduler's metadata goes to the worker, which computes tokens [first, last) of `blocks`. */
static void step(cairn_scheduler* scheduler, cairn_worker* worker, const cairn_scheduled* scheduled,
                 const uint32_t* blocks, uint32_t first, uint32_t last) {
  static uint64_t number = 0;
  cairn_iteration iteration = CAIRN_INIT(cairn_iteration);
  iteration.number = ++number;
  iteration.scheduled = scheduled;
  iteration.scheduled_count = scheduled == NULL ? 0 : 1;
  const uint8_t* metadata = NULL;
  size_t size = 0;
  must(cairn_scheduler_build(scheduler, &iteration, &metadata, &size, &failure), "build");
  cairn_refusals refusals = CAIRN_INIT(cairn_refusals);
  must(cairn_scheduler_get_refusals(scheduler, &refusals, &failure), "get_refusals");
  check(refusals.refused_count == 0, "nothing was refused");
  must(cairn_worker_bind(worker, metadata, size, &failure), "bind");
  must(cairn_worker_start_load(worker, NULL, &failure), "start_load");
  compute(blocks, first, last);
  must(cairn_worker_save_step(worker, NULL, &failure), "save_step");
  cairn_worker_outcomes outcomes = CAIRN_INIT(cairn_worker_outcomes);
  must(cairn_worker_take_outcomes(worker, &outcomes, &failure), "take_outcomes");
  check(outcomes.failed_block_count == 0, "no load failed");
}

/* Runs a request through its prefill; returns the number of tokens that were loaded instead of computed. */
static size_t run(cairn_scheduler* scheduler, cairn_worker* worker, const char* id, uint64_t image,
                  const uint32_t* blocks, size_t block_count) {
  uint32_t tokens[kPrompt];
  for (uint32_t i = 0; i < kPrompt; ++i) {
    tokens[i] = i >= kImageAt && i < kImageAt + kImageTokens ? (uint32_t)kPlaceholder : 7 * i;
  }
  cairn_mm_run item = CAIRN_INIT(cairn_mm_run);
  item.item_hash = image;
  item.offset = kImageAt;
  item.length = kImageTokens;
  cairn_prompt prompt = CAIRN_INIT(cairn_prompt);
  prompt.tokens = tokens;
  prompt.token_count = kPrompt;
  prompt.mm_runs = &item;
  prompt.mm_run_count = 1;
  cairn_new_request added = CAIRN_INIT(cairn_new_request);
  added.id = id;
  added.prompt = &prompt;
  cairn_request request = 0;
  must(cairn_scheduler_add(scheduler, &added, &request, &failure), "add");
  size_t loaded = 0;
  int32_t when = CAIRN_NOW;
  must(cairn_scheduler_match(scheduler, request, 0, &loaded, &when, &failure), "match");
  must(cairn_scheduler_allocated(scheduler, request, blocks, block_count, 0, loaded, &failure), "allocated");
  if (when == CAIRN_LATER) {
    step(scheduler, worker, NULL, blocks, 0, 0); /* starts the load */
    size_t waiting = 1;
    while (waiting > 0) {
      cairn_outcomes outcomes = CAIRN_INIT(cairn_outcomes);
      must(cairn_scheduler_take_outcomes(scheduler, &outcomes, &failure), "take_outcomes");
      if (outcomes.loaded_count > 0) {
        const cairn_loaded* first = CAIRN_AT(cairn_loaded, outcomes.loaded, outcomes.loaded_stride, 0);
        check(first->request == request && first->missing == 0, "all of it came");
        waiting = 0;
      }
    }
    check(is_computed(blocks, (uint32_t)loaded), "what was loaded is what was computed before");
  }
  cairn_scheduled scheduled = CAIRN_INIT(cairn_scheduled);
  scheduled.request = request;
  scheduled.computed_tokens = loaded;
  step(scheduler, worker, &scheduled, blocks, (uint32_t)loaded, kPrompt);
  /* The whole prompt is computed: its full blocks are saved. */
  uint32_t held = 0;
  must(cairn_scheduler_finish(scheduler, request, kPrompt, &held, &failure), "finish");
  step(scheduler, worker, NULL, blocks, 0, 0); /* starts the saves */
  while (held != 0) {
    cairn_outcomes outcomes = CAIRN_INIT(cairn_outcomes);
    must(cairn_scheduler_take_outcomes(scheduler, &outcomes, &failure), "take_outcomes");
    held = outcomes.released_count == 0;
  }
  return loaded;
}

int main(void) {
  cairn_scheduler_options options = CAIRN_INIT(cairn_scheduler_options);
  options.config = kConfig;
  options.device_blocks = kDeviceBlocks;
  cairn_scheduler* scheduler = NULL;
  must(cairn_scheduler_create(&options, &scheduler, &failure), "create scheduler");
  cairn_worker* worker = make_worker(scheduler);
  must(cairn_scheduler_wait_for_ranks(scheduler, 10000, &failure), "wait for the rank");

  static const uint32_t first[] = {3, 1, 4, 15, 9};
  static const uint32_t second[] = {2, 6, 5, 30, 0};
  static const uint32_t third[] = {7, 8, 10, 11, 12};
  check(run(scheduler, worker, "first", 0xCA7, first, 5) == 0, "the first request computes everything");
  memset(kv, 0, sizeof kv);
  const size_t loaded = run(scheduler, worker, "second", 0xCA7, second, 5);
  check(loaded == 16, "the second one computes what does not fill a block");
  check(run(scheduler, worker, "third", 0xD06, third, 5) == 8, "another image: only what is before it is the same");

  char status[16384];
  size_t needed = 0;
  (void)cairn_manager_status(cairn_scheduler_manager(scheduler), status, sizeof status, &needed);
  check(needed > 1 && status[0] == '{', "the status is JSON");
  cairn_worker_destroy(worker);
  cairn_scheduler_destroy(scheduler);
  printf("%zu of %d tokens loaded instead of computed\n", loaded, kPrompt);
  return 0;
}
