#include "cairn/transfer/cuda_lane.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/device_region.h"
#include "cairn/memory/pinned_region.h"

namespace cairn::gpu {

namespace {

constexpr std::uint64_t kSumsBytes = kMaxBlocks * sizeof(BlockSums);
constexpr std::uint64_t kArrivalsBytes = 256;
constexpr unsigned kThreads = 512;
constexpr std::size_t kPlansKept = 64;
// A short copy ends before the thread could have gone to sleep and been woken.
constexpr std::chrono::microseconds kSpin{50};

}  // namespace

CudaLane::CudaLane(const Options& options, const Kernels& kernels, const CudaDriver& driver)
    : options_(options),
      kernels_(kernels),
      driver_(driver),
      ledger_(*options.clock, options.queue_limit),
      part_sizes_(options.tuning.piece_bytes) {}

Result<std::unique_ptr<CudaLane>> CudaLane::create(const Options& options, const Kernels& kernels) {
  CAIRN_TRY_ASSIGN(const CudaDriver* driver, CudaDriver::get());
  std::unique_ptr<CudaLane> lane(new CudaLane(options, kernels, *driver));
  CAIRN_TRY(lane->allocate());
  lane->thread_ = start_own_thread("cairn-gpu", [self = lane.get()] { self->run(); });
  return lane;
}

Status CudaLane::allocate() {
  const CudaTuning& tuning = options_.tuning;
  const std::uint64_t buffer_bytes = tuning.piece_bytes + kSumsBytes + kArrivalsBytes;
  CAIRN_TRY_ASSIGN(RegionPtr device, device_region({.size = buffer_bytes * tuning.pieces, .device = options_.device}));
  Result<RegionPtr> host =
      pinned_region({.size = kSumsBytes * tuning.pieces, .device = options_.device, .required = true});
  if (!host) {
    return Unexpected(std::move(host).error());
  }
  device_memory_ = std::move(device);
  host_memory_ = *std::move(host);
  CAIRN_TRY_ASSIGN(const GpuContext context, GpuContext::enter(options_.device));
  cuda::Code code = driver_.stream_create(&kernel_stream_, cuda::kStreamNonBlocking);
  code = code != cuda::kSuccess ? code : driver_.stream_create(&copy_stream_, cuda::kStreamNonBlocking);
  const auto base = reinterpret_cast<cuda::Pointer>(device_memory_->base());
  // The staging buffers first, each aligned; the counts behind them start at zero and return to it.
  const cuda::Pointer counts = base + tuning.piece_bytes * tuning.pieces;
  buffers_.resize(tuning.pieces);
  for (std::size_t i = 0; i < buffers_.size() && code == cuda::kSuccess; ++i) {
    const cuda::Pointer own = counts + i * (kSumsBytes + kArrivalsBytes);
    buffers_[i].staging = base + i * tuning.piece_bytes;
    buffers_[i].sums = reinterpret_cast<BlockSums*>(own);
    buffers_[i].arrivals = reinterpret_cast<std::uint32_t*>(own + kSumsBytes);
    buffers_[i].sums_out = reinterpret_cast<BlockSums*>(host_memory_->base()) + i * kMaxBlocks;
    code = driver_.event_create(&buffers_[i].staged, cuda::kEventDisableTiming);
    code = code != cuda::kSuccess
               ? code
               : driver_.event_create(&buffers_[i].over, cuda::kEventDisableTiming | cuda::kEventBlockingSync);
  }
  code = code != cuda::kSuccess
             ? code
             : driver_.memset_d8_async(counts, 0, (kSumsBytes + kArrivalsBytes) * buffers_.size(), kernel_stream_);
  code = code != cuda::kSuccess ? code : driver_.stream_synchronize(kernel_stream_);
  return driver_.check(code, str_cat("preparing copies on GPU ", options_.device));
}

CudaLane::~CudaLane() {
  ledger_.close();
  if (thread_.joinable()) {
    thread_.join();
  }
  const Result<GpuContext> context = GpuContext::enter(options_.device);
  if (!context) {
    return;
  }
  for (const StagingBuffer& buffer : buffers_) {
    for (const cuda::Event event : {buffer.staged, buffer.over}) {
      if (event != nullptr) {
        static_cast<void>(driver_.event_destroy(event));
      }
    }
  }
  for (const cuda::Stream stream : {kernel_stream_, copy_stream_}) {
    if (stream != nullptr) {
      static_cast<void>(driver_.stream_destroy(stream));
    }
  }
}

void CudaLane::run() {
  const Result<GpuContext> context = GpuContext::enter(options_.device);
  CAIRN_CHECK(context.has_value(), "a context that was entered before can be entered again");
  while (true) {
    // Keep every buffer busy, across transfers; then wait for the oldest part.
    while (in_flight_.size() < buffers_.size()) {
      if (current_.transfer == nullptr) {
        std::shared_ptr<ActiveTransfer> next = in_flight_.empty() ? ledger_.take() : ledger_.try_take();
        if (next == nullptr) {
          break;
        }
        start(std::move(next));
      } else {
        begin_part();
      }
    }
    if (in_flight_.empty()) {
      return;  // closed, and nothing left
    }
    retire_oldest();
  }
}

void CudaLane::start(std::shared_ptr<ActiveTransfer> transfer) {
  Result<std::shared_ptr<const PlanOnGpu>> plan = plan_on_gpu(transfer->transfer().plan);
  if (!plan) {
    for (std::uint32_t block = 0; block < transfer->transfer().blocks.size(); ++block) {
      if (transfer->begin(block)) {
        transfer->fail(block, plan.error().message);
      }
    }
    return;
  }
  current_ = {std::move(transfer), *std::move(plan), 0};
}

void CudaLane::begin_part() {
  const Transfer& transfer = current_.transfer->transfer();
  const auto count = static_cast<std::uint32_t>(transfer.blocks.size());
  const Method method = method_for(transfer, current_.plan->made);
  const std::uint32_t most = blocks_of_part(count - current_.next, current_.plan->made, method);
  Part part{current_.transfer, current_.plan, {}, next_buffer_};
  while (current_.next < count && part.blocks.size() < most) {
    if (current_.transfer->begin(current_.next)) {
      part.blocks.push_back(current_.next);
    }
    ++current_.next;
  }
  if (current_.next == count) {
    current_ = {};
  }
  if (part.blocks.empty()) {
    return;
  }
  if (Status status = enqueue(part, method); !status) {
    // What was enqueued before the failure may still run. It ends when the streams end, or when the GPU is lost.
    static_cast<void>(driver_.stream_synchronize(kernel_stream_));
    static_cast<void>(driver_.stream_synchronize(copy_stream_));
    for (const std::uint32_t block : part.blocks) {
      part.transfer->fail(block, status.error().message);
    }
    return;
  }
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
  in_flight_.push_back(std::move(part));
}

CudaLane::Method CudaLane::method_for(const Transfer& transfer, const GpuPlan& plan) const {
  const bool within = transfer.plan->source().kind() == transfer.plan->destination().kind();
  if (transfer.verify == Verify::kOff && plan.run_bytes >= options_.tuning.engines_from_bytes) {
    return Method::kEngines;
  }
  if (!within && plan.can_stage() && plan.block_bytes >= options_.tuning.stage_from_bytes &&
      plan.block_bytes <= options_.tuning.piece_bytes) {
    return Method::kStaged;
  }
  return Method::kDirect;
}

std::uint32_t CudaLane::blocks_of_part(std::uint64_t rest, const GpuPlan& plan, Method method) {
  const std::uint64_t block = std::max<std::uint64_t>(plan.block_bytes, 1);
  const std::uint64_t bytes = part_sizes_.next({.rest = rest * block,
                                                .is_staged = method == Method::kStaged,
                                                .is_idle = in_flight_.empty(),
                                                .is_followed = ledger_.has_untaken()});
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / block, 1, kMaxBlocks));
}

Status CudaLane::enqueue(const Part& part, Method method) {
  const StagingBuffer& buffer = buffers_[part.buffer];
  const GpuPlan& plan = part.plan->made;
  Status status;
  cuda::Stream last = kernel_stream_;
  switch (method) {
    case Method::kDirect:
      status = launch(part, plan.direct, part.plan->direct_boxes, false);
      break;
    case Method::kEngines:
      status = move_runs(part);
      last = copy_stream_;
      break;
    case Method::kStaged: {
      const bool gather = options_.direction == Direction::kFromDevice;
      const cuda::Stream first = gather ? kernel_stream_ : copy_stream_;
      last = gather ? copy_stream_ : kernel_stream_;
      status = gather ? launch(part, plan.staged, part.plan->staged_boxes, true) : move_staged(part);
      if (status) {
        status = driver_.check(driver_.event_record(buffer.staged, first), "marking a staged part");
      }
      if (status) {
        status = driver_.check(driver_.stream_wait_event(last, buffer.staged, 0), "ordering a staged part");
      }
      if (status) {
        status = gather ? move_staged(part) : launch(part, plan.staged, part.plan->staged_boxes, true);
      }
      break;
    }
  }
  if (!status) {
    return status;
  }
  return driver_.check(driver_.event_record(buffer.over, last), "marking the end of a part");
}

Status CudaLane::launch(const Part& part, const BoxTable& table, cuda::Pointer boxes, bool staged) {
  const StagingBuffer& buffer = buffers_[part.buffer];
  const Transfer& transfer = part.transfer->transfer();
  Launch arguments;
  arguments.shape = table.shape;
  arguments.boxes = reinterpret_cast<const Box*>(boxes);
  const bool gather = options_.direction == Direction::kFromDevice;
  if (staged) {
    (gather ? arguments.destination_base : arguments.source_base) = buffer.staging;
  }
  if (transfer.verify != Verify::kOff) {
    arguments.sums = buffer.sums;
    arguments.sums_out = buffer.sums_out;
    arguments.arrivals = buffer.arrivals;
  }
  arguments.blocks = static_cast<std::uint32_t>(part.blocks.size());
  for (std::uint32_t i = 0; i < arguments.blocks; ++i) {
    const BlockPair& pair = transfer.blocks[part.blocks[i]].pair;
    arguments.pairs[i] = {staged && !gather ? i : pair.source, staged && gather ? i : pair.destination};
  }
  const cuda::Function kernel = table.shape.unit_bytes == 16  ? kernels_.copy_16
                                : table.shape.unit_bytes == 8 ? kernels_.copy_8
                                                              : kernels_.copy_1;
  void* parameters[] = {&arguments};
  return driver_.check(driver_.launch_kernel(kernel, options_.tuning.multiprocessors, 1, 1, kThreads, 1, 1, 0,
                                             kernel_stream_, parameters, nullptr),
                       str_cat("starting a copy of ", arguments.blocks, " blocks on GPU ", options_.device));
}

// Between the staging area and the host: one copy for each row of blocks that the host has beside each other.
Status CudaLane::move_staged(const Part& part) {
  const GpuPlan& plan = part.plan->made;
  const bool gather = options_.direction == Direction::kFromDevice;
  to_.clear();
  from_.clear();
  bytes_.clear();
  for (std::size_t i = 0; i < part.blocks.size(); ++i) {
    const BlockPair& pair = part.transfer->transfer().blocks[part.blocks[i]].pair;
    const cuda::Pointer host =
        plan.host_address + std::uint64_t{gather ? pair.destination : pair.source} * plan.host_block_step;
    const cuda::Pointer staging = buffers_[part.buffer].staging + i * plan.block_bytes;
    std::vector<cuda::Pointer>& hosts = gather ? to_ : from_;
    if (!bytes_.empty() && hosts.back() + bytes_.back() == host) {
      bytes_.back() += plan.block_bytes;
      continue;
    }
    hosts.push_back(host);
    (gather ? from_ : to_).push_back(staging);
    bytes_.push_back(plan.block_bytes);
  }
  return copy_all();
}

// From one layout to the other, run by run.
Status CudaLane::move_runs(const Part& part) {
  const Transfer& transfer = part.transfer->transfer();
  std::vector<BlockPair> pairs;
  for (const std::uint32_t block : part.blocks) {
    pairs.push_back(transfer.blocks[block].pair);
  }
  transfer.plan->expand(pairs, ~std::uint64_t{0}, copies_);
  to_.clear();
  from_.clear();
  bytes_.clear();
  const auto address = [](const BlockLayout& layout, std::uint32_t region, std::uint64_t offset) {
    return reinterpret_cast<cuda::Pointer>(layout.regions()[region]->base()) + offset;
  };
  for (const Copy& copy : copies_) {
    to_.push_back(address(transfer.plan->destination(), copy.destination_region, copy.destination_offset));
    from_.push_back(address(transfer.plan->source(), copy.source_region, copy.source_offset));
    bytes_.push_back(copy.bytes);
  }
  return copy_all();
}

Status CudaLane::copy_all() {
  cuda::Code code = cuda::kSuccess;
  if (driver_.memcpy_batch_async != nullptr && bytes_.size() > 1) {
    const cuda::BatchAttributes attributes;
    const std::size_t first = 0;
    code = driver_.memcpy_batch_async(to_.data(), from_.data(), bytes_.data(), bytes_.size(), &attributes, &first, 1,
                                      copy_stream_);
  } else {
    for (std::size_t i = 0; i < bytes_.size() && code == cuda::kSuccess; ++i) {
      code = driver_.memcpy_async(to_[i], from_[i], bytes_[i], copy_stream_);
    }
  }
  return driver_.check(code, str_cat("starting ", bytes_.size(), " copies on GPU ", options_.device));
}

void CudaLane::retire_oldest() {
  const Part part = std::move(in_flight_.front());
  in_flight_.pop_front();
  const Status status = wait_for(buffers_[part.buffer].over);
  const bool summed = part.transfer->transfer().verify != Verify::kOff;
  for (std::size_t i = 0; i < part.blocks.size(); ++i) {
    if (status) {
      part.transfer->finish(part.blocks[i], summed ? buffers_[part.buffer].sums_out[i] : BlockSums());
    } else {
      part.transfer->fail(part.blocks[i], status.error().message);
    }
  }
}

Status CudaLane::wait_for(cuda::Event event) const {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  cuda::Code code = driver_.event_query(event);
  while (code == cuda::kNotReady && std::chrono::steady_clock::now() < give_up) {
    code = driver_.event_query(event);
  }
  if (code == cuda::kNotReady) {
    code = driver_.event_synchronize(event);
  }
  return driver_.check(code, str_cat("copies on GPU ", options_.device));
}

Result<std::shared_ptr<const CudaLane::PlanOnGpu>> CudaLane::plan_on_gpu(const CopyPlanPtr& plan) {
  if (const auto found = plans_.find(plan.get()); found != plans_.end() && found->second->plan.lock() == plan) {
    return found->second;
  }
  if (plans_.size() >= kPlansKept) {
    std::erase_if(plans_, [](const auto& entry) { return entry.second->plan.expired(); });
  }
  if (plans_.size() >= kPlansKept) {
    plans_.clear();  // parts in flight hold theirs
  }
  CAIRN_TRY_ASSIGN(GpuPlan made, make_gpu_plan(*plan, options_.direction));
  auto entry = std::make_shared<PlanOnGpu>();
  entry->plan = plan;
  entry->made = std::move(made);
  const std::uint64_t direct_bytes = entry->made.direct.boxes.size() * sizeof(Box);
  const std::uint64_t staged_bytes = entry->made.staged.boxes.size() * sizeof(Box);
  CAIRN_TRY_ASSIGN(RegionPtr tables, device_region({.size = direct_bytes + staged_bytes, .device = options_.device}));
  entry->tables = std::move(tables);
  entry->direct_boxes = reinterpret_cast<cuda::Pointer>(entry->tables->base());
  entry->staged_boxes = entry->direct_boxes + direct_bytes;
  const auto upload = [this](cuda::Pointer to, const std::vector<Box>& boxes) {
    return boxes.empty() ? cuda::kSuccess
                         : driver_.memcpy_async(to, reinterpret_cast<cuda::Pointer>(boxes.data()),
                                                boxes.size() * sizeof(Box), kernel_stream_);
  };
  cuda::Code code = upload(entry->direct_boxes, entry->made.direct.boxes);
  code = code != cuda::kSuccess ? code : upload(entry->staged_boxes, entry->made.staged.boxes);
  code = code != cuda::kSuccess ? code : driver_.stream_synchronize(kernel_stream_);
  if (Status status = driver_.check(code, str_cat("uploading a plan to GPU ", options_.device)); !status) {
    return Unexpected(Error(status.error()));
  }
  plans_[plan.get()] = entry;
  return std::shared_ptr<const PlanOnGpu>(std::move(entry));
}

}  // namespace cairn::gpu
