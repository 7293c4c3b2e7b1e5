# SPDX-License-Identifier: Apache-2.0
#
# Whether device code is built. It needs a toolkit with nvcc that is new enough; without one, all
# else is built, and a sentence says why.

# gapless_cuda_refusal(<result>): sets it to why the toolkit that find_package() looked for is not
# to be used; to nothing where it is.
function(gapless_cuda_refusal result)
  set(least 13.0)  # older ones have not been tried
  set(reason "")
  if(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit)
    set(reason "it is not to be used (CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit)")
  elseif(NOT CUDAToolkit_FOUND)
    set(reason "it was not found")
  elseif(CUDAToolkit_VERSION VERSION_LESS least)
    set(reason "${least} or newer is needed, ${CUDAToolkit_BIN_DIR} has ${CUDAToolkit_VERSION}")
  elseif(NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT EXISTS "${CUDAToolkit_NVCC_EXECUTABLE}")
    set(reason "there is no nvcc in ${CUDAToolkit_BIN_DIR}")
  elseif(NOT CUDA_cudart_static_LIBRARY)
    set(reason "there is no libcudart_static.a in ${CUDAToolkit_LIBRARY_DIR}")
  endif()
  set(${result} "${reason}" PARENT_SCOPE)
endfunction()
