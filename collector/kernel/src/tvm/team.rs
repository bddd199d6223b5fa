//! A team of threads pinned to CPUs that poll for work, so that groups of calls (crews) can run concurrently; TVM's
//! pools, one per calling thread, would compete for cores. Every core has one thread, its *seat*, or one per group if
//! groups share cores (`full`). The sender writes a command, then the command's number, and waits until the seat writes
//! the number back. A seat polls for about a millisecond before it sleeps.

use measure::affinity;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

/// Parallel part of an operator in TVM's generated code. Parameters are the task number, the environment and the data.
pub(super) type Lambda = unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int;

#[derive(Clone, Copy)]
struct Patience {
    /// Number of polls before an idle seat sleeps.
    awake: u32,
    /// Number of polls after which a polling thread yields.
    alone: u32,
}

/// Numbers of polls if each core has one seat. Waiting threads yield before polling uses up their time slice.
const ALONE: Patience = Patience { awake: 20_000, alone: 256 };
/// Numbers of polls if several seats share a core.
const CROWDED: Patience = Patience { awake: 400, alone: 100 };

#[derive(Clone, Copy)]
struct TeamOrder {
    run: unsafe fn(*const c_void, usize),
    data: *const c_void,
    number: usize,
}

/// State of one thread, on its own cache lines, so that polling does not slow down neighbouring seats.
#[repr(align(128))]
struct TeamSeat {
    given: AtomicU64,
    done: AtomicU64,
    is_asleep: AtomicBool,
    is_closed: AtomicBool,
    order: UnsafeCell<TeamOrder>,
    thread: OnceLock<Thread>,
}

// SAFETY: an order is written only by the thread that may give the next one, before its number is stored, and read by
// the seat after it has loaded that number. The next order is given only after the seat has marked this one as done.
unsafe impl Sync for TeamSeat {}
// SAFETY: the pointers of an order are read by the seat alone, while the thread that gave the order waits and keeps
// the data that they point to.
unsafe impl Send for TeamSeat {}

pub(super) struct Team {
    seats: Vec<Arc<TeamSeat>>,
    threads: Vec<JoinHandle<()>>,
    patience: Patience,
}

pub(super) struct Crew {
    /// Seats of the crew, the leader first.
    seats: Vec<usize>,
    /// Synchronisation counters of the tasks, in the layout that TVM's code expects: one cache line per counter.
    sync: Box<[CacheLine]>,
    has_failed: AtomicBool,
}

#[repr(align(64))]
#[derive(Default)]
struct CacheLine(AtomicI32);

#[repr(C)]
struct Environment {
    sync: *mut c_void,
    tasks: i32,
}

struct TeamRegion<'a> {
    lambda: Lambda,
    data: *mut c_void,
    tasks: usize,
    crew: &'a Crew,
}

#[derive(Clone, Copy)]
enum Starting {
    Pool,
    /// The crew that runs the tasks, and its team. Both must outlive this value.
    Crew(*const Team, *const Crew),
    /// No other threads: the launching thread runs the tasks sequentially.
    Alone,
}

thread_local! {
    static STARTING: Cell<Starting> = const { Cell::new(Starting::Pool) };
}

// SAFETY: the function does not use its arguments.
unsafe fn do_nothing(_: *const c_void, _: usize) {}

impl TeamSeat {
    fn new() -> TeamSeat {
        TeamSeat {
            given: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            order: UnsafeCell::new(TeamOrder { run: do_nothing, data: std::ptr::null(), number: 0 }),
            thread: OnceLock::new(),
        }
    }

    /// Submits a command to the seat and returns its number.
    ///
    /// # Safety
    ///
    /// The previous command is done, no other thread submits a command, and the data of the command stays
    /// valid until it is done.
    unsafe fn give_order(&self, order: TeamOrder) -> u64 {
        // SAFETY: the seat reads only after it has loaded the number that is stored next, and is not reading now.
        unsafe { *self.order.get() = order };
        let number = self.given.load(Ordering::Relaxed) + 1;
        self.given.store(number, Ordering::SeqCst);
        self.wake_thread();
        number
    }

    fn wake_thread(&self) {
        if self.is_asleep.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn serve_orders(&self, patience: Patience) {
        let mut last = 0;
        loop {
            let mut polled = 0;
            while self.given.load(Ordering::Acquire) == last {
                if self.is_closed.load(Ordering::Acquire) {
                    return;
                }
                polled += 1;
                if polled % patience.alone == 0 {
                    std::thread::yield_now();
                }
                if polled < patience.awake {
                    std::hint::spin_loop();
                    continue;
                }
                self.is_asleep.store(true, Ordering::SeqCst);
                if self.given.load(Ordering::SeqCst) == last && !self.is_closed.load(Ordering::SeqCst) {
                    std::thread::park();
                }
                self.is_asleep.store(false, Ordering::SeqCst);
            }
            last = self.given.load(Ordering::Acquire);
            // SAFETY: the order of this number was written before it, and no other is until this one is done.
            let order = unsafe { *self.order.get() };
            // SAFETY: the caller of `give_order` guarantees that the data suits the function and lives until the order
            // is done.
            unsafe { (order.run)(order.data, order.number) };
            self.done.store(last, Ordering::Release);
        }
    }
}

impl Team {
    /// Starts `layers` threads per CPU. The calling thread, which is already pinned, has the first seat.
    pub fn new(cpus: &[usize], layers: usize) -> std::io::Result<Team> {
        let patience = if layers > 1 { CROWDED } else { ALONE };
        let seats: Vec<Arc<TeamSeat>> = (0..cpus.len() * layers).map(|_| Arc::new(TeamSeat::new())).collect();
        let mut team = Team { seats, threads: Vec::new(), patience };
        for (number, seat) in team.seats.iter().enumerate().skip(1) {
            let (cpu, own) = (cpus[number % cpus.len()], Arc::clone(seat));
            let thread = std::thread::Builder::new().name(format!("seat {number}")).spawn(move || {
                // A thread that cannot be pinned is slower, but correct; the CPUs of the process were checked before.
                let _ = affinity::pin_thread(&[cpu]);
                STARTING.set(Starting::Alone);
                own.serve_orders(patience);
            })?;
            let _ = seat.thread.set(thread.thread().clone());
            team.threads.push(thread);
        }
        Ok(team)
    }

    /// Runs `work` for all crews concurrently, each led by its first seat, and waits until all are done.
    pub fn side_by_side<W: Fn(usize) + Sync>(&self, crews: &[Crew], work: &W) {
        struct TeamJob<'a, W> {
            team: &'a Team,
            crews: &'a [Crew],
            work: &'a W,
        }
        // SAFETY: only `side_by_side` uses this function, and passes its own job.
        unsafe fn lead_group<W: Fn(usize) + Sync>(data: *const c_void, group: usize) {
            // SAFETY: `side_by_side` passes a job of this type, and waits until all orders are done.
            let job = unsafe { &*data.cast::<TeamJob<'_, W>>() };
            let before = STARTING.replace(Starting::Crew(job.team, &raw const job.crews[group]));
            (job.work)(group);
            STARTING.set(before);
        }
        let job = TeamJob { team: self, crews, work };
        let data = (&raw const job).cast();
        for (group, crew) in crews.iter().enumerate().filter(|(_, crew)| crew.seats[0] != 0) {
            let order = TeamOrder { run: lead_group::<W>, data, number: group };
            // SAFETY: seats of a stage's crews are distinct, so no other thread gives this seat orders. The job lives
            // until all orders are waited for, below.
            unsafe { self.seats[crew.seats[0]].give_order(order) };
        }
        if let Some(own) = crews.iter().position(|crew| crew.seats[0] == 0) {
            // SAFETY: the job is of this type.
            unsafe { lead_group::<W>(data, own) };
        }
        for crew in crews.iter().filter(|crew| crew.seats[0] != 0) {
            self.wait_for_seat(crew.seats[0]);
        }
    }

    fn wait_for_seat(&self, seat: usize) {
        let seat = &self.seats[seat];
        let number = seat.given.load(Ordering::Relaxed);
        let mut polled = 0u32;
        while seat.done.load(Ordering::Acquire) != number {
            polled = polled.wrapping_add(1);
            if polled.is_multiple_of(self.patience.alone) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for seat in &self.seats {
            seat.is_closed.store(true, Ordering::SeqCst);
            if let Some(thread) = seat.thread.get() {
                thread.unpark();
            }
        }
        for thread in self.threads.drain(..) {
            // The thread of a seat that panicked has already ended.
            let _ = thread.join();
        }
    }
}

impl Crew {
    /// Creates a crew. The team's first seat becomes the leader if it is among `seats`.
    pub fn new(mut seats: Vec<usize>) -> Crew {
        if let Some(own) = seats.iter().position(|seat| *seat == 0) {
            seats.swap(0, own);
        }
        let sync = std::iter::repeat_with(CacheLine::default).take(seats.len()).collect();
        Crew { seats, sync, has_failed: AtomicBool::new(false) }
    }

    fn launch_tasks(&self, team: &Team, lambda: Lambda, data: *mut c_void, tasks: usize) -> c_int {
        let tasks = if tasks == 0 { self.seats.len() } else { tasks };
        self.sync.iter().for_each(|line| line.0.store(0, Ordering::Relaxed));
        self.has_failed.store(false, Ordering::Relaxed);
        let region = TeamRegion { lambda, data, tasks, crew: self };
        let pointer = (&raw const region).cast();
        let busy = self.seats.len().min(tasks);
        for (number, &seat) in self.seats.iter().enumerate().take(busy).skip(1) {
            // SAFETY: only this crew's leader gives its members orders, one launch after the other, and the region
            // lives until all are waited for, below.
            unsafe { team.seats[seat].give_order(TeamOrder { run: run_share, data: pointer, number }) };
        }
        let before = STARTING.replace(Starting::Alone);
        // SAFETY: the region is what `run_share` expects.
        unsafe { run_share(pointer, 0) };
        STARTING.set(before);
        for &seat in &self.seats[1..busy.max(1)] {
            team.wait_for_seat(seat);
        }
        if self.has_failed.load(Ordering::Relaxed) { -1 } else { 0 }
    }
}

/// # Safety
///
/// `data` must point to the region of the launch, which lives until all members are done.
unsafe fn run_share(data: *const c_void, number: usize) {
    // SAFETY: the caller's promise.
    let region = unsafe { &*data.cast::<TeamRegion<'_>>() };
    let sync = region.crew.sync.as_ptr().cast_mut().cast();
    let tasks = i32::try_from(region.tasks).unwrap_or(i32::MAX);
    let mut environment = Environment { sync, tasks };
    for task in (number..region.tasks).step_by(region.crew.seats.len()) {
        let task = c_int::try_from(task).unwrap_or(c_int::MAX);
        // SAFETY: lambda and data are those that generated code passed, and may be used on any thread; the environment
        // has the layout of TVM's header.
        let code = unsafe { (region.lambda)(task, (&raw mut environment).cast(), region.data) };
        if code != 0 {
            region.crew.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs the tasks of a launch if this thread belongs to a crew; returns None if TVM's pool must run them.
///
/// # Safety
///
/// As for TVM's function: the lambda may run with this data on any thread.
pub(super) unsafe fn launch_on_crew(lambda: Lambda, data: *mut c_void, tasks: c_int) -> Option<c_int> {
    let tasks = usize::try_from(tasks).ok()?;
    match STARTING.get() {
        Starting::Pool => None,
        // SAFETY: both live while the thread leads a crew, which `side_by_side` ensures.
        Starting::Crew(team, crew) => Some(unsafe { (*crew).launch_tasks(&*team, lambda, data, tasks) }),
        Starting::Alone => {
            let count = c_int::try_from(tasks.max(1)).ok()?;
            let mut line = CacheLine::default();
            let mut environment = Environment { sync: (&raw mut line).cast(), tasks: count };
            // SAFETY: the caller's promise.
            let run = |task| unsafe { lambda(task, (&raw mut environment).cast(), data) };
            Some((0..count).map(run).find(|code| *code != 0).unwrap_or(0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    fn cpus() -> Vec<usize> {
        affinity::allowed_cpus().expect("this process runs somewhere")
    }

    #[test]
    fn crews_do_their_work_side_by_side_and_share_launches() {
        // SAFETY: only this test names it, and gives it what it reads.
        unsafe extern "C" fn count(task: c_int, environment: *mut c_void, data: *mut c_void) -> c_int {
            // SAFETY: the test gives counters, and a crew an environment.
            let (counters, environment) =
                unsafe { (&*data.cast::<[AtomicUsize; 8]>(), &*environment.cast::<Environment>()) };
            assert!(task < environment.tasks);
            counters[usize::try_from(task).expect("not negative")].fetch_add(1, Ordering::Relaxed);
            if environment.tasks == 7 { -3 } else { 0 }
        }
        // More seats than this machine may have cores: they take turns.
        let cpus: Vec<usize> = cpus().into_iter().cycle().take(3).collect();
        let team = Team::new(&cpus, 2).expect("threads");
        let crews = [Crew::new(vec![2, 0]), Crew::new(vec![1, 4, 5]), Crew::new(vec![3])];
        for _ in 0..200 {
            let counters: [[AtomicUsize; 8]; 3] = Default::default();
            team.side_by_side(&crews, &|group| {
                let data = (&raw const counters[group]).cast_mut().cast();
                for tasks in [0, 1, 5] {
                    // SAFETY: the data is what `count` expects.
                    assert_eq!(unsafe { launch_on_crew(count, data, tasks) }, Some(0));
                }
                // SAFETY: as above.
                assert_eq!(unsafe { launch_on_crew(count, data, 7) }, Some(-1), "a task failed");
            });
            let seen = counters.each_ref().map(|own| own.each_ref().map(|one| one.load(Ordering::Relaxed)));
            let of = |size: usize| {
                std::array::from_fn(|task| {
                    usize::from(task < size) + usize::from(task < 1) + usize::from(task < 5) + usize::from(task < 7)
                })
            };
            assert_eq!(seen, [of(2), of(3), of(1)]);
        }
    }

    #[test]
    fn without_a_crew_tvm_starts_tasks() {
        // SAFETY: the function does not use its arguments.
        unsafe extern "C" fn never(_: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
            panic!("TVM's pool was meant")
        }
        // SAFETY: nothing is called.
        assert_eq!(unsafe { launch_on_crew(never, std::ptr::null_mut(), 0) }, None);
    }

    #[test]
    #[ignore = "a measurement: what a stage of two groups costs on two awake cores"]
    #[allow(clippy::print_stderr)]
    fn barrier() {
        let cpus: Vec<usize> = cpus().into_iter().take(2).collect();
        affinity::pin_thread(&cpus[..1]).expect("allowed");
        let team = Team::new(&cpus, 1).expect("threads");
        let crews: Vec<Crew> = (0..cpus.len()).map(|seat| Crew::new(vec![seat])).collect();
        let mut times: Vec<f64> = (0..2000)
            .map(|_| {
                let start = Instant::now();
                (0..100).for_each(|_| team.side_by_side(&crews, &|_| ()));
                start.elapsed().as_nanos() as f64 / 100.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        eprintln!("a stage of {} groups: median {} ns, p95 {} ns", crews.len(), times[1000], times[1900]);
    }
}
