# proto/polysil/v1/*.proto -> polysil_proto, with gRPC stubs.
file(GLOB proto_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/polysil/v1/*.proto)
if(NOT proto_files)
  add_library(polysil_proto INTERFACE)
  return()
endif()
set(proto_out ${CMAKE_BINARY_DIR}/proto)
file(MAKE_DIRECTORY ${proto_out})
set(proto_sources)
foreach(proto ${proto_files})
  get_filename_component(stem ${proto} NAME_WE)
  set(base ${proto_out}/polysil/v1/${stem})
  add_custom_command(
    OUTPUT ${base}.pb.cc ${base}.pb.h ${base}.grpc.pb.cc ${base}.grpc.pb.h
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${proto_out}
            --grpc_out=${proto_out} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>
            ${proto}
    DEPENDS ${proto_files} VERBATIM)
  list(APPEND proto_sources ${base}.pb.cc ${base}.grpc.pb.cc)
endforeach()
add_library(polysil_proto STATIC ${proto_sources})
target_include_directories(polysil_proto SYSTEM PUBLIC ${proto_out})
target_compile_options(polysil_proto PRIVATE -w)
target_link_libraries(polysil_proto PUBLIC gRPC::grpc++ protobuf::libprotobuf)
