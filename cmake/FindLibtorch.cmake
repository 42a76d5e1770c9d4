# Libtorch::Libtorch: libtorch's CPU part, from Debian's libtorch-dev or from a libtorch that CMAKE_PREFIX_PATH names.
# Not through its own TorchConfig.cmake: that asks for everything the library was built with (of a CUDA build: the CUDA
# toolkit), while all that is used here are tensors and autograd on the CPU.
find_path(LIBTORCH_INCLUDE_DIR ATen/ATen.h)
find_library(LIBTORCH_CPU_LIBRARY torch_cpu)
find_library(LIBTORCH_C10_LIBRARY c10)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch REQUIRED_VARS LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY LIBTORCH_INCLUDE_DIR)
mark_as_advanced(LIBTORCH_INCLUDE_DIR LIBTORCH_CPU_LIBRARY LIBTORCH_C10_LIBRARY)

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE ${LIBTORCH_INCLUDE_DIR}
                             ${LIBTORCH_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(Libtorch::Libtorch INTERFACE ${LIBTORCH_CPU_LIBRARY} ${LIBTORCH_C10_LIBRARY})
  # Each source includes the headers of the operations it calls, not those of all two thousand.
  target_compile_definitions(Libtorch::Libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
endif()
