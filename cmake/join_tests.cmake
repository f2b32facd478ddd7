# cmake -D OUT=FILE -D ROOT=FOLDER -D SOURCES="A;B" -P join_tests.cmake: writes one source that stands for all of these.
#
# Test files name their helpers as they like, inside an anonymous namespace. Each gets a namespace of its own here, so that
# the same name in two files does not clash. Messages name the file and line that was written by hand.
set(joined "")
foreach(source IN LISTS SOURCES)
  get_filename_component(stem ${source} NAME_WE)
  file(RELATIVE_PATH path ${ROOT} ${source})
  file(READ ${source} text)
  string(REPLACE "\nnamespace {\n" "\nnamespace in_${stem} {\n" text "${text}")
  string(APPEND joined "#line 1 \"${path}\"\n${text}")
endforeach()
file(WRITE ${OUT} "${joined}")
