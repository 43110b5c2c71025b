# The CUDA twin. If there is a compiler for it, device/cuda/ becomes a part of strata_device; otherwise absent.cc stands
# in for it. The CUDA runtime is linked in; other libraries are loaded when the program runs
# (device/cuda/libraries/library.h).
set(STRATA_CUDA AUTO CACHE STRING "Build for GPUs: ON, OFF, or AUTO (ON if nvcc is found and there are no sanitizers)")
set(STRATA_CUDA_ARCHITECTURES "90-real;80-virtual" CACHE STRING
    "GPUs that kernels are compiled for: machine code for the H100 and H200, and what drivers translate for others from the A100 on")

set(STRATA_WITH_CUDA OFF)
set(why "STRATA_CUDA=OFF")
if(STRATA_CUDA STREQUAL "AUTO" AND STRATA_SANITIZE)
  set(why "a build with sanitizers (STRATA_CUDA=ON to have both)")
elseif(STRATA_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
                 PATH_SUFFIXES bin)
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${STRATA_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3")
    if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc has had it for longer than CMake 3.25 knows
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    if(CUDAToolkit_VERSION VERSION_LESS 12.5)
      set(why "CUDA ${CUDAToolkit_VERSION} is older than 12.5")
    elseif(NOT CUBLASLT_INCLUDE)
      set(why "${CMAKE_CUDA_COMPILER} without cublasLt.h next to it: install CUDA's libcublas-dev")
    else()
      set(STRATA_WITH_CUDA ON)
      set(why "${CMAKE_CUDA_COMPILER} ${CUDAToolkit_VERSION}, for ${STRATA_CUDA_ARCHITECTURES}")
    endif()
  else()
    unset(CMAKE_CUDA_COMPILER CACHE)
    set(why "nvcc is neither on the path nor in /usr/local/cuda")
  endif()
  if(STRATA_CUDA STREQUAL "ON" AND NOT STRATA_WITH_CUDA)
    message(FATAL_ERROR "STRATA_CUDA=ON, but ${why}")
  endif()
endif()

if(NOT STRATA_WITH_CUDA)
  message(STATUS "CUDA: not built: ${why}")
  target_sources(strata_device PRIVATE device/cuda/absent.cc device/cuda/absent_gpus.cc)
  return()
endif()
message(STATUS "CUDA: built: ${why}")

file(GLOB cuda_sources CONFIGURE_DEPENDS device/cuda/*.cc device/cuda/libraries/*.cc device/cuda/ops/*/*.cc)
list(FILTER cuda_sources EXCLUDE REGEX "/absent(_gpus)?\\.cc$")
# cuDNN's fused attention, where the headers of cuDNN and of its frontend are (scripts/setup.sh --cuda fetches those).
find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
file(GLOB python_includes $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/include /usr/local/lib/python3*/*/include
     $ENV{HOME}/.local/lib/python3*/site-packages/include)
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS ${CMAKE_SOURCE_DIR}/.cuda/include $ENV{CUDNN_FRONTEND_PATH}/include ${python_includes})
if(CUDNN_INCLUDE AND CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cuDNN: built: ${CUDNN_FRONTEND_INCLUDE}")
  list(FILTER cuda_sources EXCLUDE REGEX "/cudnn_absent\\.cc$")
  # Without optimisation, functions of the frontend that are not called would refer to more of cuDNN.
  set_source_files_properties(device/cuda/libraries/cudnn_attention.cc PROPERTIES COMPILE_OPTIONS -O2)
  target_include_directories(strata_device SYSTEM PRIVATE ${CUDNN_INCLUDE} ${CUDNN_FRONTEND_INCLUDE})
else()
  message(STATUS "cuDNN: not built, own attention instead: no cudnn.h, or no cudnn_frontend.h (scripts/setup.sh --cuda)")
  list(FILTER cuda_sources EXCLUDE REGEX "/cudnn(_attention)?\\.cc$")
endif()
target_sources(strata_device PRIVATE ${cuda_sources})
string(REGEX MATCHALL "[0-9]+" numbers "${STRATA_CUDA_ARCHITECTURES}")
list(SORT numbers COMPARE NATURAL)
list(GET numbers 0 oldest)
set_source_files_properties(device/cuda/gpu.cc PROPERTIES COMPILE_DEFINITIONS STRATA_CUDA_OLDEST=${oldest})
target_link_libraries(strata_device PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
target_include_directories(strata_device SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUBLASLT_INCLUDE})

file(GLOB cuda_kernels CONFIGURE_DEPENDS device/cuda/*.cu device/cuda/ops/*.cu device/cuda/ops/*/*.cu)
add_library(strata_kernels_cuda OBJECT ${cuda_kernels})
target_include_directories(strata_kernels_cuda PRIVATE ${CMAKE_SOURCE_DIR})
# No contraction that the source does not spell out. The macro: otherwise fmt uses what nvcc does not compile.
target_compile_definitions(strata_kernels_cuda PRIVATE FMT_USE_CONSTEXPR=1)
target_compile_options(strata_kernels_cuda PRIVATE -fmad=false --expt-relaxed-constexpr -Werror=all-warnings
                       "SHELL:-Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas"
                       # A kernel whose registers spill, or that keeps an array in memory, is an error.
                       "SHELL:-Xptxas -warn-spills,-warn-lmem-usage,-Werror")
target_sources(strata_device PRIVATE $<TARGET_OBJECTS:strata_kernels_cuda>)
