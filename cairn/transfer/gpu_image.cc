#include "cairn/transfer/gpu_image.h"

#ifdef CAIRN_GPU_IMAGE
// The build gives the path of the file that the CUDA compiler made.
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden cairn_gpu_image_begin\n"
    ".hidden cairn_gpu_image_end\n"
    ".global cairn_gpu_image_begin\n"
    ".global cairn_gpu_image_end\n"
    "cairn_gpu_image_begin:\n"
    ".incbin \"" CAIRN_GPU_IMAGE
    "\"\n"
    "cairn_gpu_image_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" const std::byte cairn_gpu_image_begin[];
extern "C" const std::byte cairn_gpu_image_end[];
#endif

namespace cairn::gpu {

std::span<const std::byte> image() {
#ifdef CAIRN_GPU_IMAGE
  return {cairn_gpu_image_begin, cairn_gpu_image_end};
#else
  return {};
#endif
}

}  // namespace cairn::gpu
