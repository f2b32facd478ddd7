// Helpers of the tests of the C interface: a small manager, and an engine of one scheduler and one worker in this
// process.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <cairn/cairn_c.h>

#include "cairn/capi/capi_testing.h"

namespace cairn_c_test {

inline const std::string kConfig = "event_log = 64\n" + config_text(2, 8, 16) + "[onboard]\nweigh = false\n";

inline cairn_manager* make_manager() {
  auto options = sized<cairn_manager_options>();
  options.config = kConfig.c_str();
  cairn_manager* manager = nullptr;
  auto error = sized<cairn_error>();
  EXPECT_EQ(cairn_manager_create(&options, &manager, &error), CAIRN_OK) << error.message;
  return manager;
}

// One scheduler with one worker, in this process.
class Engine {
 public:
  static constexpr std::uint32_t kBlocks = 16;

  // `longest_ms`: the limit for every wait of the worker; 0: the defaults.
  explicit Engine(cairn_scheduler* given = make_scheduler(), std::uint64_t longest_ms = 0)
      : scheduler(given), limit_ms(longest_ms) {
    EXPECT_EQ(create_worker(), CAIRN_OK) << error.message;
    EXPECT_EQ(cairn_scheduler_wait_for_ranks(scheduler, 10'000, &error), CAIRN_OK) << error.message;
  }
  ~Engine() {
    cairn_worker_destroy(worker);
    cairn_scheduler_destroy(scheduler);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static cairn_scheduler_options options() {
    auto options = sized<cairn_scheduler_options>();
    options.config = kConfig.c_str();
    options.device_blocks = kBlocks;
    return options;
  }
  static cairn_scheduler* make_scheduler() {
    const cairn_scheduler_options given = options();
    cairn_scheduler* made = nullptr;
    EXPECT_EQ(cairn_scheduler_create(&given, &made, nullptr), CAIRN_OK);
    return made;
  }
  int32_t create_worker() {
    static const char* const kLayers[] = {"layers.0", "layers.1"};
    static const std::uint32_t axes[] = {CAIRN_AXIS_LAYER, CAIRN_AXIS_KV,   CAIRN_AXIS_BLOCK,
                                         CAIRN_AXIS_TOKEN, CAIRN_AXIS_HEAD, CAIRN_AXIS_ELEMENT};
    static const std::uint64_t sizes[] = {2, 2, kBlocks, 4, 1, 4};
    static const std::int64_t strides[] = {2 * kBlocks * 16, kBlocks * 16, 16, 4, 4, 1};
    auto tensor = sized<cairn_tensor>();
    tensor.base = kv;
    tensor.bytes = sizeof kv;
    tensor.rank = 6;
    tensor.axes = axes;
    tensor.sizes = sizes;
    tensor.strides = strides;
    auto group = sized<cairn_group>();
    group.name = "attention";
    group.layers = kLayers;
    group.layer_count = 2;
    group.tensors = &tensor;
    group.tensor_count = 1;
    group.element_bits = 32;
    group.page_size = 4;
    auto given = sized<cairn_worker_options>();
    given.scheduler = scheduler;
    given.groups = &group;
    given.group_count = 1;
    given.layers = kLayers;
    given.layer_count = 2;
    given.fence_limit_ms = limit_ms;
    given.layer_limit_ms = limit_ms;
    given.answer_limit_ms = limit_ms;
    given.first_connection_ms = limit_ms;
    return cairn_worker_create(&given, &worker, &error);
  }

  std::string next_id() { return "a request with a long id, number " + std::to_string(++requests); }
  int32_t add(const std::string& id, cairn_request* request, std::uint32_t first = 1) {
    std::uint32_t tokens[10];
    for (std::uint32_t i = 0; i < 10; ++i) {
      tokens[i] = first + i;
    }
    auto prompt = sized<cairn_prompt>();
    prompt.tokens = tokens;
    prompt.token_count = 10;
    auto given = sized<cairn_new_request>();
    given.id = id.c_str();
    given.prompt = &prompt;
    return cairn_scheduler_add(scheduler, &given, request, &error);
  }
  // Builds an iteration of at most one request.
  int32_t build(const cairn_scheduled* scheduled, std::uint64_t number) {
    auto iteration = sized<cairn_iteration>();
    iteration.number = number;
    iteration.scheduled = scheduled;
    iteration.scheduled_count = scheduled == nullptr ? 0 : 1;
    return cairn_scheduler_build(scheduler, &iteration, &metadata, &metadata_size, &error);
  }
  // Runs a whole iteration.
  void step(const cairn_scheduled* scheduled = nullptr) {
    EXPECT_EQ(build(scheduled, ++iterations), CAIRN_OK) << error.message;
    auto refusals = sized<cairn_refusals>();
    EXPECT_EQ(cairn_scheduler_get_refusals(scheduler, &refusals, &error), CAIRN_OK) << error.message;
    EXPECT_EQ(refusals.refused_count, 0U) << refusals.refused[0].message;
    EXPECT_EQ(cairn_worker_bind(worker, metadata, metadata_size, &error), CAIRN_OK) << error.message;
    EXPECT_EQ(cairn_worker_start_load(worker, nullptr, &error), CAIRN_OK) << error.message;
    EXPECT_EQ(cairn_worker_save_step(worker, nullptr, &error), CAIRN_OK) << error.message;
    auto outcomes = sized<cairn_worker_outcomes>();
    EXPECT_EQ(cairn_worker_take_outcomes(worker, &outcomes, &error), CAIRN_OK) << error.message;
  }
  // Runs iterations until a request is released.
  void wait_for_release() {
    for (std::size_t released = 0; released == 0;) {
      step();
      auto outcomes = sized<cairn_outcomes>();
      ASSERT_EQ(cairn_scheduler_take_outcomes(scheduler, &outcomes, &error), CAIRN_OK) << error.message;
      released = outcomes.released_count;
    }
  }
  // Runs a request that computes its prompt in these blocks, and waits until they are saved.
  void save(const std::vector<std::uint32_t>& blocks, std::uint32_t first = 1) {
    cairn_request request = 0;
    ASSERT_EQ(add(next_id(), &request, first), CAIRN_OK) << error.message;
    ASSERT_EQ(cairn_scheduler_allocated(scheduler, request, blocks.data(), blocks.size(), 0, 0, &error), CAIRN_OK)
        << error.message;
    auto scheduled = sized<cairn_scheduled>();
    scheduled.request = request;
    step(&scheduled);
    std::uint32_t held = 0;
    ASSERT_EQ(cairn_scheduler_finish(scheduler, request, 10, &held, &error), CAIRN_OK) << error.message;
    ASSERT_EQ(held, 1U);
    wait_for_release();
  }
  void finish(cairn_request request) {
    std::uint32_t held = 0;
    ASSERT_EQ(cairn_scheduler_finish(scheduler, request, CAIRN_NOT_SAID, &held, &error), CAIRN_OK) << error.message;
    if (held != 0) {
      wait_for_release();
    }
  }

  float kv[2 * 2 * kBlocks * 16] = {};
  cairn_scheduler* scheduler;
  std::uint64_t limit_ms;
  cairn_worker* worker = nullptr;
  cairn_error error = sized<cairn_error>();
  const std::uint8_t* metadata = nullptr;
  std::size_t metadata_size = 0;
  std::uint64_t iterations = 0;
  int requests = 0;
};

}  // namespace cairn_c_test
