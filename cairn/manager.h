// Public headers of the component "manager": KvBlockManager, which keeps blocks in device memory, host memory and on disk.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/base/metrics.h"
#include "cairn/core.h"
#include "cairn/layout/block_layout.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/manager_status.h"
#include "cairn/memory/region.h"
#include "cairn/onboard/group_prefix.h"
// IWYU pragma: end_exports
