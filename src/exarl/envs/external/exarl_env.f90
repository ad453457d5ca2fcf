! exarl_env.h for Fortran: the same functions, by the same names. Link with exarl_env.c.
module exarl_env
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_int, c_int64_t, c_null_char, c_ptr, &
      c_size_t
  implicit none

  integer(c_int), parameter :: exarl_failed = -1, exarl_closed = 0, exarl_reset = 1, exarl_step = 2
  integer(c_int), parameter :: exarl_get_state = 3, exarl_set_state = 4 ! after exarl_offer_state

  interface
    ! The connection to EXARL; not associated (c_associated) if EXARL did not start this program.
    function exarl_open() bind(c) result(env)
      import :: c_ptr
      type(c_ptr) :: env
    end function

    ! Observations are n numbers within bounds.
    subroutine exarl_box_observation(env, n, low, high) bind(c)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int), value :: n
      real(c_double), intent(in) :: low(*), high(*)
    end subroutine

    ! Actions are n numbers within bounds.
    subroutine exarl_box_action(env, n, low, high) bind(c)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int), value :: n
      real(c_double), intent(in) :: low(*), high(*)
    end subroutine

    ! Actions are one of 0 .. n - 1.
    subroutine exarl_discrete_action(env, n) bind(c)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int), value :: n
    end subroutine

    ! Say something about this environment for people, such as "reward" and "K"; both texts end with
    ! c_null_char.
    subroutine exarl_about(env, name, text) bind(c)
      import :: c_char, c_ptr
      type(c_ptr), value :: env
      character(kind=c_char), intent(in) :: name(*), text(*)
    end subroutine

    ! Wait for exarl_reset, exarl_step, exarl_closed or exarl_failed.
    function exarl_wait(env) bind(c) result(asked)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int) :: asked
    end function

    ! The seed of the last reset; -1: continue with the present random numbers.
    function exarl_seed(env) bind(c) result(seed)
      import :: c_int64_t, c_ptr
      type(c_ptr), value :: env
      integer(c_int64_t) :: seed
    end function

    ! The action of the last step, of a discrete space.
    function exarl_choice(env) bind(c) result(choice)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int) :: choice
    end function

    ! Number i (counted from 0) of the action of the last step, of a box.
    function exarl_action(env, i) bind(c) result(number)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int), value :: i
      real(c_double) :: number
    end function

    ! Answer a reset; returns 0 on success.
    function exarl_observe(env, observation) bind(c) result(error)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: env
      real(c_double), intent(in) :: observation(*)
      integer(c_int) :: error
    end function

    ! Answer a step; terminated and truncated are 0 or 1.
    function exarl_result(env, observation, reward, terminated, truncated) bind(c) result(error)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: env
      real(c_double), intent(in) :: observation(*)
      real(c_double), value :: reward
      integer(c_int), value :: terminated, truncated
      integer(c_int) :: error
    end function

    ! Report that the simulation failed; end the text with c_null_char.
    function exarl_fail(env, text) bind(c) result(error)
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: env
      character(kind=c_char), intent(in) :: text(*)
      integer(c_int) :: error
    end function

    ! Add a number to the next exarl_observe or exarl_result; end the name with c_null_char.
    function exarl_info(env, name, number) bind(c) result(error)
      import :: c_char, c_double, c_int, c_ptr
      type(c_ptr), value :: env
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: number
      integer(c_int) :: error
    end function

    ! Say, before the first exarl_wait and after what observations and actions are, that only some of the
    ! discrete actions may be allowed.
    function exarl_offer_mask(env) bind(c) result(error)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int) :: error
    end function

    ! Say which of the n actions are allowed after the next observation: those that are not 0.
    function exarl_action_mask(env, mask, n) bind(c) result(error)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int), intent(in) :: mask(*)
      integer(c_int), value :: n
      integer(c_int) :: error
    end function

    ! Say, before the first exarl_wait, that this program can save and restore a running episode.
    subroutine exarl_offer_state(env) bind(c)
      import :: c_ptr
      type(c_ptr), value :: env
    end subroutine

    ! Answer exarl_get_state: bytes is c_loc of a variable, and size how many bytes it has.
    function exarl_state(env, bytes, size) bind(c) result(error)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: env, bytes
      integer(c_size_t), value :: size
      integer(c_int) :: error
    end function

    ! With exarl_set_state: the bytes that exarl_state once sent, for c_f_pointer, and how many.
    function exarl_state_bytes(env) bind(c) result(bytes)
      import :: c_ptr
      type(c_ptr), value :: env
      type(c_ptr) :: bytes
    end function

    function exarl_state_size(env) bind(c) result(size)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: env
      integer(c_size_t) :: size
    end function

    ! Answer exarl_set_state.
    function exarl_done(env) bind(c) result(error)
      import :: c_int, c_ptr
      type(c_ptr), value :: env
      integer(c_int) :: error
    end function

    subroutine exarl_close(env) bind(c)
      import :: c_ptr
      type(c_ptr), value :: env
    end subroutine
  end interface
end module
