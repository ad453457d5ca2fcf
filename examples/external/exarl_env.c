/* The functions of exarl_env.h as symbols that Fortran can call. */
#define EXARL_EXTERN
#include "exarl_env.h"
