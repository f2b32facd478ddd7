// Everything that an inference engine needs to embed Cairn. It leaves out cairn/sim.h; for C there is cairn/cairn_c.h.
//
// Public headers: this one, core.h, manager.h, connector.h, sim.h, cairn_c.h, and what they include. All others may change at any
// time and are not installed.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/connector.h"
#include "cairn/core.h"
#include "cairn/manager.h"
// IWYU pragma: end_exports
