// ReturnsFile: keeps what the pools of a manager learned of return times in a file beside that of the disk tier, so that a
// restart does not begin without it.
//
// Nothing depends on the file: one that is missing, damaged or of another version is ignored, and the pools learn anew.
//
// Thread safety: none; one thread at a time calls.
#pragma once

#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/return_model.h"

namespace cairn {

class ReturnsFile {
 public:
  // How long what was learned may be lost.
  static constexpr Duration kSaveEvery = std::chrono::minutes(10);

  ReturnsFile(std::string disk_path, std::shared_ptr<ReturnModel> model, TimePoint now)
      : path_(std::move(disk_path) + ".returns"), model_(std::move(model)), save_at_(now + kSaveEvery) {}

  // Nothing happens if there is no file. Fails if it cannot be read or used; the message names it.
  [[nodiscard]] Status load();
  // Replaces the file as a whole.
  [[nodiscard]] Status save();
  // Saves if that is due.
  [[nodiscard]] Status save_if_due(TimePoint now);

 private:
  const std::string path_;
  const std::shared_ptr<ReturnModel> model_;
  TimePoint save_at_;
};

}  // namespace cairn
