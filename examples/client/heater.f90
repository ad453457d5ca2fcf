! A heated tank as a solver that owns its loop: it chooses its own time steps.
!
!     gfortran $(exarl include fortran) -O2 -o heater heater.f90
!     exarl train --agent DQN-v0 --env ExaClient-v0 --command ./heater --total_steps 10000
!
! The heater is off, at half power or on, which is decided whenever a second has passed. The reward is minus
! the distance from 60 degrees, over the time in between.
program heater
  use, intrinsic :: iso_c_binding, only: c_associated, c_double, c_int, c_int64_t, c_null_char, c_ptr
  use exarl_client
  implicit none

  real(c_double), parameter :: wanted = 60, room = 20, longest = 200
  real(c_double), parameter :: low(2) = [0, 0], high(2) = [100, 1]
  type(c_ptr) :: client
  real(c_double) :: temperature, water, time, due, dt
  integer(c_int64_t) :: power
  integer(c_int) :: told

  client = exarl_connect(c_null_char, 0.0_c_double)
  if (.not. c_associated(client)) stop 1
  call exarl_box_observation(exarl_env_of(client), 2, low, high)
  call exarl_discrete_action(exarl_env_of(client), 3)
  call exarl_about(exarl_env_of(client), "reward"//c_null_char, "10 K s"//c_null_char)
  call exarl_about(exarl_env_of(client), "observation"//c_null_char, &
      "temperature in degrees Celsius, level of the water"//c_null_char)
  episodes: do while (exarl_begin_episode(client) > 0)
    temperature = room + real(modulo(exarl_seed(exarl_env_of(client)), 41_c_int64_t), c_double)
    water = 0.5_c_double
    time = 0
    due = 0
    do while (time < longest)
      if (time >= due) then
        power = 0
        if (exarl_get_action(client, [temperature, water], power, -1.0_c_double) <= 0) exit episodes
        due = due + 1
      end if
      dt = merge(0.05_c_double, 0.1_c_double, power > 0)
      temperature = temperature + dt * (real(power, c_double) - 0.04_c_double * (temperature - room))
      water = water + dt * 0.1_c_double * (sin(0.1_c_double * time) / 2 + 0.5_c_double - water)
      time = time + dt
      call exarl_log_reward(client, -dt * abs(temperature - wanted) / 10)
    end do
    told = exarl_end_episode(client, [temperature, water], 0, 1)
    if (told <= 0) exit
  end do episodes
  call exarl_disconnect(client)
end program
