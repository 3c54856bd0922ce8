# Completion scripts and manual pages, printed by the program itself: cmake -DPROGRAM=... -DOUTPUT=... -P this
function(print file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${OUTPUT}/${file} RESULT_VARIABLE result)
  if(result)
    message(FATAL_ERROR "convoy ${ARGN} ended with ${result}")
  endif()
endfunction()

file(REMOVE_RECURSE ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT}/bash-completion/completions ${OUTPUT}/zsh/site-functions ${OUTPUT}/fish/vendor_completions.d
     ${OUTPUT}/man/man1)
print(bash-completion/completions/convoy completion bash)
print(zsh/site-functions/_convoy completion zsh)
print(fish/vendor_completions.d/convoy.fish completion fish)
print(man/man1/convoy.1 man)
# The verbs are what the help lists: two blanks, a word, and what it does.
execute_process(COMMAND ${PROGRAM} --help OUTPUT_VARIABLE help)
string(REGEX REPLACE "\n\noptions:.*" "" help "${help}")
string(REGEX MATCHALL "\n  [a-z]+ " verbs "${help}")
foreach(verb ${verbs})
  string(STRIP ${verb} verb)
  print(man/man1/convoy-${verb}.1 man ${verb})
endforeach()
