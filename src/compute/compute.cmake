# Kernels: one source (kernels_simd.inc) is compiled for each instruction set; one is chosen at run time.
set(SFP_COMPUTE
    compute/gemm.c
    compute/kernels.c
    compute/kernels_ref.c
    compute/kernels_generic.c
    compute/param.c
    compute/pixels.c)
list(TRANSFORM SFP_COMPUTE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)

set(simd_flags -O3 -ffp-contract=fast -fno-trapping-math -fno-signed-zeros)
set_source_files_properties(compute/kernels_generic.c PROPERTIES COMPILE_OPTIONS "${simd_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND SFP_COMPUTE ${CMAKE_CURRENT_SOURCE_DIR}/compute/kernels_avx2.c ${CMAKE_CURRENT_SOURCE_DIR}/compute/kernels_avx512.c)
    set_source_files_properties(compute/kernels_avx2.c PROPERTIES COMPILE_OPTIONS "${simd_flags};-mavx2;-mfma;-mtune=znver3")
    set_source_files_properties(compute/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
        "${simd_flags};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx2;-mfma;-mprefer-vector-width=512")
endif()

# Matrix products: one file per backend.
add_library(sfp_gemm INTERFACE)
if(SFP_GEMM STREQUAL "onednn")
    # Without find_package: Debian's dnnl-config.cmake requires OpenCL, which a CPU build does not need.
    find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h REQUIRED)
    find_library(DNNL_LIBRARY dnnl REQUIRED)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h major REGEX "define DNNL_VERSION_MAJOR")
    string(REGEX REPLACE "[^0-9]" "" major "${major}")
    message(STATUS "Matrix products: oneDNN ${major} (${DNNL_LIBRARY})")
    list(APPEND SFP_COMPUTE ${CMAKE_CURRENT_SOURCE_DIR}/compute/gemm_onednn.c)
    if(major LESS 3)
        list(APPEND SFP_COMPUTE ${CMAKE_CURRENT_SOURCE_DIR}/compute/gemm_onednn2.c)
    else()
        list(APPEND SFP_COMPUTE ${CMAKE_CURRENT_SOURCE_DIR}/compute/gemm_onednn3.c)
    endif()
    target_include_directories(sfp_gemm INTERFACE ${DNNL_INCLUDE_DIR})
    # oneDNN throws C++ exceptions, which one file catches. They pass through the functions in C that call oneDNN.
    get_target_property(flags sfp_flags INTERFACE_COMPILE_OPTIONS)
    list(FILTER flags EXCLUDE REGEX "strict-prototypes|^-include$|banned|sanitize") # for C only
    add_library(sfp_onednn_call OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/compute/onednn_call.cpp)
    target_include_directories(sfp_onednn_call PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${DNNL_INCLUDE_DIR})
    target_compile_options(sfp_onednn_call PRIVATE -fvisibility=hidden ${flags})
    set_source_files_properties(compute/gemm_onednn.c compute/gemm_onednn2.c compute/gemm_onednn3.c PROPERTIES COMPILE_OPTIONS -fexceptions)
    target_link_libraries(sfp_gemm INTERFACE ${DNNL_LIBRARY} stdc++)
elseif(SFP_GEMM STREQUAL "cblas")
    find_library(SFP_CBLAS_LIBRARY NAMES openblas blis cblas REQUIRED)
    list(APPEND SFP_COMPUTE ${CMAKE_CURRENT_SOURCE_DIR}/compute/gemm_cblas.c)
    target_link_libraries(sfp_gemm INTERFACE ${SFP_CBLAS_LIBRARY})
else()
    message(FATAL_ERROR "SFP_GEMM is '${SFP_GEMM}', expected onednn or cblas")
endif()
