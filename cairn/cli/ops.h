// `cairn ops`: runs a script of operations on a simulated KvManager. Each line of the script is a JSON object; each answer is a
// line with the result, the events it published, and the counts after it.
//
//   config {capacity, block_size, eviction}   must come first; eviction is the name of a policy
//   new {seq, tokens, max_output}             creates a sequence; max_output is optional
//   alloc {seq, tokens}                       allocates blocks for its first `tokens` tokens, as far as there is room
//   push {seq, token}                         appends a token; undone if there is no room
//   preempt {seq}                             releases its blocks
//   free {seq}                                releases its blocks and removes the sequence
//   use {seq, blocks}, deref {seq, blocks}    takes and releases full blocks by index, one by one
//   cost {seq}                                what its prefill would cost
//
// Errors: an invalid line; the message names the line. All lines before it have been answered.
#pragma once

#include <iosfwd>

#include "cairn/base/result.h"
#include "cairn/sim/kv_manager.h"

namespace cairn::cli {

struct OpsOptions {
  sim::Profile profile = sim::Profile::kSeed;
};

[[nodiscard]] Status run_ops(const OpsOptions& options, std::istream& script, std::ostream& answers);

}  // namespace cairn::cli
