# The kernels, where there is a CUDA compiler: nvcc of the machine, or the one that ./test fetches into build/cuda.
# Nothing of CUDA is linked; without a compiler the library has no kernels, and says so when a GPU is asked for.
find_program(CAIRN_NVCC nvcc
  HINTS ENV CUDA_HOME PATH_SUFFIXES bin
  PATHS /usr/local/cuda/bin ${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu13/bin)
if(NOT CAIRN_NVCC)
  message(STATUS "no nvcc: built without GPU kernels")
endif()

# cairn_gpu_image(KERNELS.cu IMAGE_SOURCE.cc): compiles the kernels to one fat binary and embeds it there.
function(cairn_gpu_image kernels image_source)
  if(NOT CAIRN_NVCC)
    return()
  endif()
  set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
  add_custom_command(OUTPUT ${image}
    COMMAND ${CAIRN_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 -I ${PROJECT_SOURCE_DIR} -fatbin
      -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
      -gencode arch=compute_100,code=[sm_100,compute_100]
      -MD -MF ${image}.d ${CMAKE_CURRENT_SOURCE_DIR}/${kernels} -o ${image}
    DEPENDS ${kernels}
    DEPFILE ${image}.d
    COMMENT "Compiling ${kernels} for GPUs"
    VERBATIM)
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${image_source} PROPERTIES
    OBJECT_DEPENDS ${image} COMPILE_DEFINITIONS CAIRN_GPU_IMAGE="${image}")
  add_custom_target(cairn_gpu_kernels DEPENDS ${image})
  add_dependencies(cairn_part_transfer cairn_gpu_kernels)
endfunction()
