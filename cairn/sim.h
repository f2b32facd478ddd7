// Public headers of the component "sim": replay of traces on simulated engines in virtual time.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/sim/replay.h"
#include "cairn/sim/report.h"
#include "cairn/sim/request_source.h"
// IWYU pragma: end_exports
