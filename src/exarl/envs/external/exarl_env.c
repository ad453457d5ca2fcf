/* The functions of exarl_env.h and exarl_client.h as symbols that Fortran can call. */
#define EXARL_EXTERN
#include "exarl_client.h"
