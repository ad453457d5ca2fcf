! exarl_client.h for Fortran, for a program that owns its loop: the same functions, by the same names.
! Compile it after exarl_env.f90 and link with exarl_env.c, as 'exarl include fortran' lists them.
module exarl_client
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_int, c_int64_t, c_ptr
  use exarl_env
  implicit none

  ! What exarl_get_action returns; exarl_closed and exarl_failed mean that EXARL is gone.
  integer(c_int), parameter :: exarl_in_time = 1, exarl_late = 2

  ! Ask for the action for an observation, and wait some seconds for it (below 0: as long as it takes).
  ! The action is an array of real(c_double) of a box, an integer(c_int64_t) of a discrete space. If the
  ! answer is late, it stays as it is, and EXARL is told that this is what was done.
  interface exarl_get_action
    function exarl_get_action_box(client, observation, action, seconds) &
        bind(c, name="exarl_get_action") result(found)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: client
      real(c_double), intent(in) :: observation(*)
      real(c_double), intent(inout) :: action(*)
      real(c_double), value :: seconds
      integer(c_int) :: found
    end function

    function exarl_get_choice(client, observation, action, seconds) bind(c) result(found)
      import :: c_double, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: client
      real(c_double), intent(in) :: observation(*)
      integer(c_int64_t), intent(inout) :: action
      real(c_double), value :: seconds
      integer(c_int) :: found
    end function
  end interface

  ! Tell EXARL which action is taken after an observation, without asking it.
  interface exarl_log_action
    function exarl_log_action_box(client, observation, action) bind(c, name="exarl_log_action") &
        result(found)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: client
      real(c_double), intent(in) :: observation(*), action(*)
      integer(c_int) :: found
    end function

    function exarl_log_choice(client, observation, action) bind(c) result(found)
      import :: c_double, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: client
      real(c_double), intent(in) :: observation(*)
      integer(c_int64_t), intent(in) :: action
      integer(c_int) :: found
    end function
  end interface

  interface
    ! The connection to ExaClient-v0 at an address that ends with c_null_char, "unix:PATH", for which it
    ! tries for some seconds; "": to the EXARL that started this program. Not associated if it fails.
    function exarl_connect(address, seconds) bind(c, name="exarl_connect_to") result(client)
      import :: c_char, c_double, c_ptr
      character(kind=c_char), intent(in) :: address(*)
      real(c_double), value :: seconds
      type(c_ptr) :: client
    end function

    ! The env for exarl_box_observation and the like, exarl_seed and exarl_info.
    function exarl_env_of(client) bind(c) result(env)
      import :: c_ptr
      type(c_ptr), value :: client
      type(c_ptr) :: env
    end function

    ! Wait until EXARL wants an episode: 1; 0: it wants no more.
    function exarl_begin_episode(client) bind(c) result(begun)
      import :: c_int, c_ptr
      type(c_ptr), value :: client
      integer(c_int) :: begun
    end function

    ! Add to the reward of the last action.
    subroutine exarl_log_reward(client, reward) bind(c)
      import :: c_double, c_ptr
      type(c_ptr), value :: client
      real(c_double), value :: reward
    end subroutine

    ! End the episode; terminated and truncated are 0 or 1.
    function exarl_end_episode(client, observation, terminated, truncated) bind(c) result(told)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: client
      real(c_double), intent(in) :: observation(*)
      integer(c_int), value :: terminated, truncated
      integer(c_int) :: told
    end function

    subroutine exarl_disconnect(client) bind(c)
      import :: c_ptr
      type(c_ptr), value :: client
    end subroutine
  end interface
end module
