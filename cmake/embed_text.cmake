# Writes text files as C strings: -DOUT=file -DHEADER=include -DFILES=list of name=path. Each byte becomes a number, so
# that no text can break the C.
set(body "/* Made by cmake/embed_text.cmake. */\n#include \"${HEADER}\"\n\n")
foreach(entry ${FILES})
  string(FIND "${entry}" "=" at)
  string(SUBSTRING "${entry}" 0 ${at} name)
  math(EXPR at "${at} + 1")
  string(SUBSTRING "${entry}" ${at} -1 path)
  file(READ "${path}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND body "const char ${name}[] = {${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${body}")
