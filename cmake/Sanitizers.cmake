# POLYSIL_SANITIZE: empty, "address" (with undefined behaviour) or "thread".
set(POLYSIL_SANITIZE "" CACHE STRING "empty, address or thread")
if(POLYSIL_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(POLYSIL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT POLYSIL_SANITIZE STREQUAL "")
  message(FATAL_ERROR "POLYSIL_SANITIZE is '${POLYSIL_SANITIZE}'; use address, thread or nothing")
endif()
