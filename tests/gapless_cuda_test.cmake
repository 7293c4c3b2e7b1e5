# SPDX-License-Identifier: Apache-2.0
#
# cmake -P gapless_cuda_test.cmake
# What a machine has, and whether device code is built there (cmake/gapless_cuda.cmake).

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/gapless_cuda.cmake)

# expect(<reason> <variable> <value>...): of a machine that has all but what is said here.
function(expect reason)
  set(CUDAToolkit_FOUND TRUE)
  set(CUDAToolkit_VERSION 13.0.88)
  set(CUDAToolkit_BIN_DIR /opt/cuda/bin)
  set(CUDAToolkit_LIBRARY_DIR /opt/cuda/lib64)
  set(CUDAToolkit_NVCC_EXECUTABLE ${CMAKE_CURRENT_LIST_FILE})  # a file that is there
  set(CUDA_cudart_static_LIBRARY /opt/cuda/lib64/libcudart_static.a)
  while(NOT ARGN STREQUAL "")
    list(POP_FRONT ARGN name value)
    set(${name} ${value})
  endwhile()
  gapless_cuda_refusal(found)
  if(NOT found STREQUAL reason)
    message(SEND_ERROR "expected '${reason}', found '${found}'")
  endif()
endfunction()

expect("")
expect("" CUDAToolkit_VERSION 13.0)
expect("" CUDAToolkit_VERSION 14.1.2)
expect("it was not found" CUDAToolkit_FOUND FALSE)
expect("it is not to be used (CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit)"
  CUDAToolkit_FOUND FALSE CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
expect("13.0 or newer is needed, /opt/cuda/bin has 12.9.41" CUDAToolkit_VERSION 12.9.41)
expect("13.0 or newer is needed, /opt/cuda/bin has 9.2" CUDAToolkit_VERSION 9.2)
expect("there is no nvcc in /opt/cuda/bin" CUDAToolkit_NVCC_EXECUTABLE NOTFOUND)
expect("there is no nvcc in /opt/cuda/bin" CUDAToolkit_NVCC_EXECUTABLE /opt/cuda/bin/nvcc)
expect("there is no libcudart_static.a in /opt/cuda/lib64"
  CUDA_cudart_static_LIBRARY CUDA_cudart_static_LIBRARY-NOTFOUND)
