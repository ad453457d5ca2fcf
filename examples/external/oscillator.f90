! A damped oscillator that a force in [-1, 1] brings to rest, as a program for EXARL.
!
!     gfortran $(exarl include fortran) -O2 -o oscillator oscillator.f90
!     exarl train --agent SAC-v0 --env ExaExternal-v0 --command ./oscillator --n_steps 200
program oscillator
  use, intrinsic :: iso_c_binding, only: c_associated, c_double, c_int, c_int64_t, c_ptr
  use exarl_env
  implicit none

  real(c_double), parameter :: dt = 0.05_c_double, damping = 0.1_c_double
  real(c_double), parameter :: far = 100, one(1) = 1, bound(2) = far
  type(c_ptr) :: env
  real(c_double) :: x(2), force, reward
  integer(c_int) :: error

  env = exarl_open()
  if (.not. c_associated(env)) stop 1
  call exarl_box_observation(env, 2, -bound, bound)
  call exarl_box_action(env, 1, -one, one)
  error = 0
  do while (error == 0)
    select case (exarl_wait(env))
    case (exarl_reset)
      call start(exarl_seed(env))
      error = exarl_observe(env, x)
    case (exarl_step)
      force = exarl_action(env, 0)
      x(2) = x(2) + dt * (force - x(1) - damping * x(2))
      x(1) = x(1) + dt * x(2)
      reward = -(x(1)**2 + 0.1_c_double * x(2)**2 + 0.001_c_double * force**2)
      error = exarl_result(env, x, reward, 0, 0)
    case default
      exit
    end select
  end do
  call exarl_close(env)

contains

  subroutine start(seed)
    integer(c_int64_t), intent(in) :: seed
    integer(c_int64_t) :: word
    integer, allocatable :: words(:)
    integer :: n, i
    if (seed >= 0) then
      call random_seed(size=n)
      allocate (words(n))
      word = mod(seed, 2147483646_c_int64_t) + 1
      do i = 1 - 8, n  ! the generator of Park and Miller, warmed up
        word = mod(48271 * word, 2147483647_c_int64_t)
        if (i > 0) words(i) = int(word)
      end do
      call random_seed(put=words)
    end if
    call random_number(x)
    x = 2 * x - 1
  end subroutine
end program
