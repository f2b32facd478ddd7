// CallRecorder: writes the calls of a SchedulerConnector to a file, for bug reports and for tests of plug-ins. `cairn replay
// --calls FILE` makes the same calls in virtual time (docs/connector.md describes the file).
//
// The file has one JSON object a line: first the configuration without secrets, then one line for each call, with the time
// since the start, what was given and what came back. Tokens are left out unless record.tokens is on; the keys of full
// blocks stand for them, from which nobody can tell the tokens without the secret that keys are made with. Only the user who runs
// the engine can read the file.
//
// Thread safety: none; the scheduler's thread.
// Ownership:     the SchedulerConnector; the clock outlives it.
// Errors:        open(): the file cannot be created. Once a write has failed, for example because the disk is full,
//                recording stops and a line on stderr says so; the connector is not affected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "cairn/base/clock.h"
#include "cairn/base/json_writer.h"
#include "cairn/base/result.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

class CallRecorder {
 public:
  // The file of options.manager.record, which gets a number at its end if it exists already.
  [[nodiscard]] static Result<std::unique_ptr<CallRecorder>> open(const SchedulerConnector::Options& options);
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;
  ~CallRecorder();

  // One for each call, after it returned. `sequence` is the request's, null if there is no such request.
  void added(const RequestId& id, const SchedulerConnector::NewRequest& request, const Result<RequestHandle>& handle,
             const TokenBlockSequence* sequence);
  void matched(RequestHandle request, std::size_t local_tokens, const Result<SchedulerConnector::Match>& match);
  void allocated(RequestHandle request, std::span<const BlockId> blocks, std::size_t local_tokens,
                 std::size_t loaded_tokens, const Status& status);
  // `sequence_of` returns the sequence of a request or null.
  template <typename SequenceOf>
  void built(const SchedulerConnector::Iteration& iteration, const Status& status,
             std::span<const SchedulerConnector::Refused> refused, const SequenceOf& sequence_of) {
    begin("build");
    begin_iteration(iteration);
    for (const SchedulerConnector::Scheduled& each : iteration.scheduled) {
      scheduled(each, sequence_of(each.request));
    }
    end_iteration(refused, status);
  }
  void finished(RequestHandle request, std::optional<std::size_t> computed_tokens, RequestEnding ending,
                const Result<bool>& is_held);
  // Outcomes without content are left out.
  void took(const SchedulerConnector::Outcomes& outcomes);
  // `weights_generation`: of new weights; std::nullopt for a reset.
  void reset(std::optional<std::uint64_t> weights_generation, const Result<ResetReport>& report);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  CallRecorder(std::FILE* file, std::string path, const SchedulerConnector::Options& options);

  void begin(const char* call);
  void begin_iteration(const SchedulerConnector::Iteration& iteration);
  void scheduled(const SchedulerConnector::Scheduled& scheduled, const TokenBlockSequence* sequence);
  void end_iteration(std::span<const SchedulerConnector::Refused> refused, const Status& status);
  template <typename R>
  void end(const R& result);
  void end_line();
  void flush();
  void stop();
  void request(RequestHandle request);
  void tokens(const char* name, std::span<const Token> tokens);
  void blocks(const char* name, std::span<const BlockId> blocks);
  void runs(const char* name, std::span<const MmRun> runs);
  // The keys that the request has since the last call.
  void keys(RequestHandle request, const TokenBlockSequence* sequence);

  std::unique_ptr<std::FILE, Close> file_;  // null once a write has failed
  const std::string path_;
  const bool with_tokens_;
  const Clock& clock_;
  const TimePoint start_;
  std::string line_;
  std::optional<JsonWriter> json_;  // of the line
  std::unordered_map<RequestHandle, std::size_t> keys_written_;
};

}  // namespace cairn
