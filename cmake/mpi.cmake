# mpi.cmake - programs of MPI, built by the compilers of each MPI that is installed.
#
# They are ordinary MPI programs that know nothing of Fiber: what `mpicc x.c` makes. So they are made by mpicc, beside the
# project's own rules, and only where there is one.
#
# SPDX-License-Identifier: Apache-2.0
find_program(FIBER_MPICC_OPENMPI NAMES mpicc.openmpi)
find_program(FIBER_MPICC_MPICH NAMES mpicc.mpich)

# fiber_add_mpi_programs(<folder> <target>): builds each .c of the folder as NAME.openmpi and NAME.mpich in the same
# folder of the build, as part of `all`.
function(fiber_add_mpi_programs folder target)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
    file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
    set(out ${PROJECT_BINARY_DIR}/${folder})
    file(MAKE_DIRECTORY ${out})
    set(programs "")
    foreach(source ${sources})
        cmake_path(GET source STEM name)
        foreach(mpi openmpi mpich)
            string(TOUPPER FIBER_MPICC_${mpi} compiler)
            if(${compiler})
                add_custom_command(OUTPUT ${out}/${name}.${mpi} DEPENDS ${source} ${headers}
                    COMMAND ${${compiler}} -O2 -Wall -o ${out}/${name}.${mpi} ${source} -lm -lz
                    COMMENT "mpicc ${folder}/${name}.${mpi}" VERBATIM)
                list(APPEND programs ${out}/${name}.${mpi})
            endif()
        endforeach()
    endforeach()
    add_custom_target(${target} ALL DEPENDS ${programs})
endfunction()
