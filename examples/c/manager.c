/* A block manager with a device, a host tier and events, in C: blocks are filled, registered, found, lost on the device and
 * loaded again. The "device" is memory of this process, so that it runs everywhere. */
#include <string.h>

#include "examples/c/must.h"

enum { kBlockSize = 4, kTokens = 16, kBlocks = kTokens / kBlockSize };

static const char kConfig[] =
    "block_size = 4\n"
    "[model]\n"
    "name = \"example\"\n"
    "layers = 2\n"
    "heads = 2\n"
    "head_size = 8\n"
    "element_type = \"f32\"\n"
    "[device]\n"
    "memory = \"system\"\n"
    "blocks = 16\n"
    "[host]\n"
    "blocks = 64\n"
    "[offload.host]\n"
    "mode = \"write-through\"\n";

/* The row of a block, as bytes: K of the first token and head in the first layer. */
static char* row(cairn_manager* manager, uint32_t block_id) {
  void* address = NULL;
  must(cairn_manager_address(manager, CAIRN_G1, block_id, 0, 0, 0, 0, &address, &failure), "address");
  return address;
}

static void show_events(cairn_events* events) {
  char lines[4096];
  size_t needed = 0;
  must(cairn_events_next(events, 1024, lines, sizeof lines, &needed, &failure), "events");
  printf("%s", lines);
}

int main(void) {
  printf("Cairn %s, interface %u\n", cairn_version(), cairn_api_version());
  cairn_manager_options options = CAIRN_INIT(cairn_manager_options);
  options.config = kConfig;
  cairn_manager* manager = NULL;
  must(cairn_manager_create(&options, &manager, &failure), "create");
  cairn_events* events = NULL;
  must(cairn_events_create(manager, &events, &failure), "events");

  uint32_t tokens[kTokens];
  for (uint32_t i = 0; i < kTokens; ++i) {
    tokens[i] = 1000 + i;
  }
  cairn_key keys[kBlocks];
  size_t count = 0;
  cairn_prompt prompt = CAIRN_INIT(cairn_prompt);
  prompt.tokens = tokens;
  prompt.token_count = kTokens;
  must(cairn_manager_hash_prompt(manager, &prompt, keys, kBlocks, &count, &failure), "hash");
  check(count == kBlocks, "sixteen tokens are four blocks");

  /* Compute: fill blocks and register them. */
  cairn_blocks* blocks = NULL;
  must(cairn_manager_allocate(manager, CAIRN_G1, kBlocks, &blocks, &failure), "allocate");
  uint32_t block_ids[kBlocks];
  (void)cairn_blocks_ids(blocks, block_ids, kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    memset(row(manager, block_ids[i]), (int)(i + 1), 8 * sizeof(float));
  }
  must(cairn_blocks_register(blocks, keys, kBlocks, NULL, &failure), "register");
  cairn_blocks_release(blocks);

  /* Registered blocks are copied to the host; then the device is reset. */
  must(cairn_manager_drain(manager, 5000, &failure), "drain");
  uint32_t forgotten = 0;
  must(cairn_manager_reset(manager, CAIRN_G1, &forgotten, &failure), "reset");
  check(forgotten == kBlocks, "the device forgot four blocks");
  uint8_t levels[kBlocks];
  size_t found = 0;
  must(cairn_manager_locate(manager, keys, kBlocks, levels, &found, &failure), "locate");
  check(found == kBlocks && levels[0] == CAIRN_G2, "all of it is in host memory");

  /* Load them back. */
  must(cairn_manager_load(manager, keys, kBlocks, 5000, &blocks, &failure), "load");
  check(cairn_blocks_count(blocks) == kBlocks, "all of it is loaded");
  (void)cairn_blocks_ids(blocks, block_ids, kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    check(row(manager, block_ids[i])[5] == (char)(i + 1), "a block has the bytes that were registered");
  }
  cairn_blocks_release(blocks);
  show_events(events);

  char text[16384];
  size_t needed = 0;
  (void)cairn_manager_metrics(manager, text, sizeof text, &needed);
  check(needed > 1 && strstr(text, "cairn_load_seconds") != NULL, "metrics tell of the load");
  cairn_events_destroy(events);
  cairn_manager_destroy(manager);
  printf("four blocks lost and loaded again\n");
  return 0;
}
