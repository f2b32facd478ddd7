// Public headers of the component "sim": replay of traces on simulated engines in virtual time.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/sim/engine_options.h"
#include "cairn/sim/kv_event_sink.h"
#include "cairn/sim/replay.h"
#include "cairn/sim/report.h"
// IWYU pragma: end_exports
