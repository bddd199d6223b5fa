//! Bindings to PAPI, opened at run time without its header. Call order matters: the library for software-defined events
//! must be loaded with global symbols before PAPI is initialised, once per process. PAPI accepts only its own version
//! number and safely rejects others. Every call except initialisation requires a registered thread; otherwise PAPI
//! follows a null pointer. PAPI grows its tables of threads, events and sets without locking, so a mutex serialises all
//! calls except reading, and the table of sets, which reading uses, is grown before the first read.

use std::{
    cell::Cell,
    ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_ulong, c_void},
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError, atomic::AtomicI64},
};

use super::names::NAMES;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use nix::unistd::gettid;

const LIBRARIES: &[&str] =
    &["libpapi.so.7.3", "libpapi.so.7.2", "libpapi.so.7.1", "libpapi.so.7.0", "libpapi.so.6.0", "libpapi.so"];
/// PAPI versions whose structure layouts are known, newest first.
const VERSIONS: &[(c_int, c_int)] = &[(7, 3), (7, 2), (7, 1), (7, 0), (6, 0)];
const SDE_LIBRARY: &str = "libsde.so.1";

/// PAPI's error code for an event that is unknown or refused by the kernel.
const NO_EVENT: c_int = -7;
const CONFLICT: c_int = -8;
const NULL_SET: c_int = -1;
const OPTION_INHERIT: c_int = 28;
const ENUMERATE_FIRST: c_int = 1;
const ENUMERATE_NEXT: c_int = 0;
const NATIVE_MASK: c_int = 0x4000_0000;

/// Maximum number of event names that are compared to suggest a spelling.
const NAMES_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PapiError {
    pub code: Option<i32>,
    /// Reason of the error, with a remedy if one is known.
    pub why: String,
}

impl PapiError {
    /// Returns whether the event conflicts with others in its set, so that it may be countable in a separate set.
    pub fn is_conflict(&self) -> bool {
        self.code == Some(CONFLICT)
    }
}

const SETS: usize = 1024;

pub struct Papi {
    functions: Mutex<PapiFunctions>,
    read: Read,
    strerror: StrError,
    version: (c_int, c_int),
    file: String,
    sde: Option<Library>,
    _library: Library,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub name: String,
    pub disabled: Option<String>,
}

macro_rules! functions {
    ($($field:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        struct PapiFunctions { $($field: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl PapiFunctions {
            fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of PAPI's header, unchanged in all versions listed in `LIBRARIES`.
                unsafe { Ok(Self { $($field: *library.get($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    library_init: b"PAPI_library_init\0", fn(c_int) -> c_int;
    thread_init: b"PAPI_thread_init\0", fn(extern "C" fn() -> c_ulong) -> c_int;
    strerror: b"PAPI_strerror\0", fn(c_int) -> *const c_char;
    num_components: b"PAPI_num_components\0", fn() -> c_int;
    get_component_info: b"PAPI_get_component_info\0", fn(c_int) -> *const c_char;
    event_name_to_code: b"PAPI_event_name_to_code\0", fn(*const c_char, *mut c_int) -> c_int;
    event_code_to_name: b"PAPI_event_code_to_name\0", fn(c_int, *mut c_char) -> c_int;
    get_event_component: b"PAPI_get_event_component\0", fn(c_int) -> c_int;
    enum_cmp_event: b"PAPI_enum_cmp_event\0", fn(*mut c_int, c_int, c_int) -> c_int;
    register_thread: b"PAPI_register_thread\0", fn() -> c_int;
    unregister_thread: b"PAPI_unregister_thread\0", fn() -> c_int;
    create_eventset: b"PAPI_create_eventset\0", fn(*mut c_int) -> c_int;
    assign_eventset_component: b"PAPI_assign_eventset_component\0", fn(c_int, c_int) -> c_int;
    set_opt: b"PAPI_set_opt\0", fn(c_int, *mut c_void) -> c_int;
    add_named_event: b"PAPI_add_named_event\0", fn(c_int, *const c_char) -> c_int;
    start: b"PAPI_start\0", fn(c_int) -> c_int;
    read: b"PAPI_read\0", fn(c_int, *mut c_longlong) -> c_int;
    stop: b"PAPI_stop\0", fn(c_int, *mut c_longlong) -> c_int;
    cleanup_eventset: b"PAPI_cleanup_eventset\0", fn(c_int) -> c_int;
    destroy_eventset: b"PAPI_destroy_eventset\0", fn(*mut c_int) -> c_int;
}

type Read = unsafe extern "C" fn(c_int, *mut c_longlong) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// Environment variable with the path of PAPI's library, which overrides the loader's search path.
const FILE_VARIABLE: &str = "OPCOLLECT_PAPI";

pub fn open_library() -> Result<&'static Papi, PapiError> {
    static PAPI: OnceLock<Result<Papi, PapiError>> = OnceLock::new();
    // Read from the environment and not from a configuration file, because opening a library runs its code and a
    // configuration may be untrusted.
    let file = || std::env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    PAPI.get_or_init(|| Papi::open_file(file().as_deref())).as_ref().map_err(Clone::clone)
}

fn plain_error(why: String) -> PapiError {
    PapiError { code: None, why }
}

extern "C" fn thread_number() -> c_ulong {
    c_ulong::try_from(gettid().as_raw()).unwrap_or(0)
}

impl Papi {
    fn open_file(file: Option<&Path>) -> Result<Self, PapiError> {
        // SAFETY: opening runs the initialisers of an installed PAPI; the user named the file, or it is on the loader's
        // search path.
        let (sde, opened) = unsafe {
            let sde = Library::open(Some(SDE_LIBRARY), RTLD_NOW | RTLD_GLOBAL).ok();
            let names: Vec<PathBuf> = match file {
                Some(file) => vec![file.to_path_buf()],
                None => LIBRARIES.iter().map(PathBuf::from).collect(),
            };
            let open = |name: &PathBuf| Some((Library::open(Some(name), RTLD_NOW | RTLD_LOCAL).ok()?, name.clone()));
            (sde, names.iter().find_map(open))
        };
        let (library, name) = opened.ok_or_else(|| {
            let looked = file.map_or_else(|| LIBRARIES.join(", "), |file| file.display().to_string());
            plain_error(format!(
                "no PAPI library (looked for {looked}); install it (Debian: libpapi7.0) or set {FILE_VARIABLE} to its \
                 path"
            ))
        })?;
        let functions =
            PapiFunctions::load(&library).map_err(|error| plain_error(format!("`{}`: {error}", name.display())))?;
        let (read, strerror) = (functions.read, functions.strerror);
        let (functions, file) = (Mutex::new(functions), name.display().to_string());
        let mut papi = Self { functions, read, strerror, version: (0, 0), file, sde, _library: library };
        papi.version = papi.initialise_library()?;
        papi.make_room()?;
        Ok(papi)
    }

    fn initialise_library(&self) -> Result<(c_int, c_int), PapiError> {
        let mut last = 0;
        for &(major, minor) in VERSIONS {
            let version = major << 24 | minor << 16;
            // SAFETY: any number may be passed, because PAPI first compares it with its own version.
            last = self.with_functions(|papi| unsafe { (papi.library_init)(version) });
            if last == version {
                // SAFETY: the function lives as long as the program and may be called on any thread.
                self.check_status(self.with_functions(|papi| unsafe { (papi.thread_init)(thread_number) }))?;
                return Ok((major, minor));
            }
        }
        Err(PapiError { code: Some(last), why: format!("`{}` cannot be initialised as PAPI 6.0 to 7.3", self.file) })
    }

    fn make_room(&self) -> Result<(), PapiError> {
        self.enter_thread()?;
        self.with_functions(|papi| {
            let mut sets = [NULL_SET; SETS];
            // SAFETY: PAPI is initialised and this thread is registered; each handle is a valid pointer, and only sets
            // that were created are destroyed.
            unsafe {
                for set in &mut sets {
                    (papi.create_eventset)(set);
                }
                for set in sets.iter_mut().filter(|set| **set != NULL_SET) {
                    (papi.destroy_eventset)(set);
                }
            }
        });
        Ok(())
    }

    fn with_functions<T>(&self, call: impl FnOnce(&PapiFunctions) -> T) -> T {
        call(&self.functions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn version_text(&self) -> String {
        format!("{}.{} ({})", self.version.0, self.version.1, self.file)
    }

    fn enter_thread(&self) -> Result<(), PapiError> {
        if IS_KNOWN.with(|known| known.0.get()) {
            return Ok(());
        }
        // SAFETY: PAPI was initialised with a thread function.
        self.check_status(self.with_functions(|papi| unsafe { (papi.register_thread)() }))?;
        IS_KNOWN.with(|known| known.0.set(true));
        Ok(())
    }

    fn check_status(&self, code: c_int) -> Result<c_int, PapiError> {
        if code >= 0 {
            return Ok(code);
        }
        // SAFETY: PAPI returns null or a static string.
        let why = unsafe {
            let text = (self.strerror)(code);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        };
        Err(PapiError { code: Some(code), why })
    }

    pub fn list_components(&self) -> Vec<Component> {
        // SAFETY: PAPI is initialised.
        let count = self.with_functions(|papi| unsafe { (papi.num_components)() });
        (0..count).filter_map(|index| self.describe_component(index)).collect()
    }

    fn describe_component(&self, index: c_int) -> Option<Component> {
        // Offsets of the reason and of the flag after it; version 7 enlarged the reason.
        const REASON: usize = 512;
        let flag = if self.version.0 == 6 { 640 } else { 1536 };
        // SAFETY: PAPI returns null or a structure of more than 1.5 KiB (0.6 KiB in version 6) that lives as long as
        // the library; only bytes up to and including the flag are read.
        let bytes = unsafe {
            let info = self.with_functions(|papi| (papi.get_component_info)(index)).cast::<u8>();
            if info.is_null() {
                return None;
            }
            std::slice::from_raw_parts(info, flag + 4)
        };
        let disabled = c_int::from_ne_bytes(bytes[flag..].try_into().expect("four bytes"));
        Some(Component {
            name: text_of(&bytes[..128]),
            disabled: (disabled != 0).then(|| {
                let reason = text_of(&bytes[REASON..flag]);
                if reason.is_empty() { format!("PAPI error {disabled}") } else { reason }
            }),
        })
    }

    pub fn native_events(&self, component: &str, limit: usize) -> Vec<String> {
        let Some(index) = self.list_components().iter().position(|candidate| candidate.name == component) else {
            return Vec::new();
        };
        let index = c_int::try_from(index).expect("few components");
        if self.enter_thread().is_err() {
            return Vec::new();
        }
        let mut names = Vec::new();
        let mut code = NATIVE_MASK;
        let mut modifier = ENUMERATE_FIRST;
        // SAFETY: `code` is a valid pointer; the name buffer has PAPI's maximum length (1024), with the final zero.
        self.with_functions(|papi| unsafe {
            while names.len() < limit && (papi.enum_cmp_event)(&mut code, modifier, index) == 0 {
                modifier = ENUMERATE_NEXT;
                let mut name = [0_u8; 1024];
                if (papi.event_code_to_name)(code, name.as_mut_ptr().cast()) == 0 {
                    names.push(text_of(&name));
                }
            }
        });
        names
    }

    pub fn component_of(&self, event: &str) -> Result<c_int, PapiError> {
        let name = event_name(event)?;
        self.enter_thread()?;
        self.check_sde_event(event)?;
        let mut code = 0;
        // SAFETY: the name ends with a zero, and `code` is a valid pointer.
        let found = self.with_functions(|papi| unsafe { (papi.event_name_to_code)(name.as_ptr(), &mut code) });
        self.check_status(found).map_err(|error| self.with_reason(event, error))?;
        // SAFETY: the code comes from PAPI.
        self.check_status(self.with_functions(|papi| unsafe { (papi.get_event_component)(code) }))
    }

    /// Rejects software-defined events that do not exist. PAPI accepts any name, because one may be registered later.
    fn check_sde_event(&self, event: &str) -> Result<(), PapiError> {
        if !event.starts_with("sde:::") || missing_component(event, &self.list_components()).is_some() {
            return Ok(());
        }
        let events = self.native_events("sde", NAMES_MAX);
        if events.iter().any(|offered| offered == event) {
            return Ok(());
        }
        let hint = models::names::name_hint(event, events.iter().map(String::as_str));
        Err(plain_error(format!("no library in this process provides the software-defined event; {hint}")))
    }

    pub fn is_hardware(&self, component: c_int) -> bool {
        self.describe_component(component).is_some_and(|component| component.name.starts_with("perf_event"))
    }

    /// Adds to the error for an unknown event that its component is disabled or missing, or a similar event name.
    fn with_reason(&self, event: &str, mut error: PapiError) -> PapiError {
        if error.code == Some(NO_EVENT)
            && let Some(reason) =
                missing_component(event, &self.list_components()).or_else(|| self.nearest_event(event))
        {
            error.why = format!("{}; {reason}", error.why);
        }
        error
    }

    fn nearest_event(&self, event: &str) -> Option<String> {
        let component = event.split_once(":::").map_or("perf_event", |(component, _)| component);
        let events = self.native_events(component, NAMES_MAX);
        let presets = NAMES.iter().flat_map(|counter| counter.papi.iter().copied());
        models::names::suggest_nearest(
            event,
            events.iter().map(String::as_str).chain(presets).filter(|name| *name != event),
        )
    }
}

/// Describes why an event's component (before `:::`, else the processor's) is unavailable; None if it is available.
fn missing_component(event: &str, components: &[Component]) -> Option<String> {
    let (name, is_named) = event.split_once(":::").map_or(("perf_event", false), |(name, _)| (name, true));
    match components.iter().find(|component| component.name == name) {
        Some(component) => {
            let reason = component.disabled.as_ref()?;
            Some(format!("PAPI's component {name} is disabled: {reason}"))
        }
        None => is_named.then(|| format!("the PAPI library was built without the component {name}")),
    }
}

/// Whether this thread is registered with PAPI. Dropping unregisters the thread: the kernel reuses thread numbers.
struct IsKnown(Cell<bool>);

thread_local! {
    static IS_KNOWN: IsKnown = const { IsKnown(Cell::new(false)) };
}

impl Drop for IsKnown {
    fn drop(&mut self) {
        if self.0.get()
            && let Ok(papi) = open_library()
        {
            // SAFETY: this thread is registered, and its sets were dropped before, since they cannot leave the thread.
            papi.with_functions(|papi| unsafe { (papi.unregister_thread)() });
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn event_name(event: &str) -> Result<CString, PapiError> {
    CString::new(event).map_err(|_| plain_error(format!("`{}` is not a valid event name", event.escape_default())))
}

/// Events of one PAPI component, counted for the thread that created the set.
pub struct EventSet {
    papi: &'static Papi,
    handle: c_int,
    count: usize,
    is_running: bool,
    values: Vec<c_longlong>,
    /// Prevents sending to another thread, because PAPI binds the set to its thread.
    not_send: PhantomData<*const ()>,
}

impl EventSet {
    pub fn new(papi: &'static Papi, component: c_int, with_descendants: bool) -> Result<Self, PapiError> {
        let mut handle = NULL_SET;
        papi.enter_thread()?;
        // SAFETY: the handle is a valid pointer.
        papi.check_status(papi.with_functions(|papi| unsafe { (papi.create_eventset)(&mut handle) }))?;
        let set = Self { papi, handle, count: 0, is_running: false, values: Vec::new(), not_send: PhantomData };
        set.configure_set(component, with_descendants)?;
        Ok(set)
    }

    fn configure_set(&self, component: c_int, with_descendants: bool) -> Result<(), PapiError> {
        let papi = self.papi;
        // SAFETY: the set exists.
        papi.check_status(
            papi.with_functions(|papi| unsafe { (papi.assign_eventset_component)(self.handle, component) }),
        )?;
        if with_descendants && papi.is_hardware(component) {
            let mut option: [c_int; 256] = [0; 256];
            (option[0], option[1]) = (self.handle, 1);
            // SAFETY: the option's structure is two integers, and the buffer is larger than the union.
            papi.check_status(
                papi.with_functions(|papi| unsafe { (papi.set_opt)(OPTION_INHERIT, option.as_mut_ptr().cast()) }),
            )?;
        }
        Ok(())
    }

    /// Adds an event; the set must be stopped.
    pub fn add_event(&mut self, event: &str) -> Result<(), PapiError> {
        let name = event_name(event)?;
        // SAFETY: the set is ours and the name ends with a zero.
        let added = self.papi.with_functions(|papi| unsafe { (papi.add_named_event)(self.handle, name.as_ptr()) });
        self.papi.check_status(added).map_err(|error| self.papi.with_reason(event, error))?;
        self.count += 1;
        self.values.resize(self.count, 0);
        Ok(())
    }

    pub fn start_counting(&mut self) -> Result<(), PapiError> {
        // SAFETY: the set is ours and stopped.
        self.papi.check_status(self.papi.with_functions(|papi| unsafe { (papi.start)(self.handle) }))?;
        self.is_running = true;
        Ok(())
    }

    pub fn papi_library(&self) -> &'static Papi {
        self.papi
    }

    /// Returns the counts in the order in which events were added, or None if the set is stopped or PAPI fails.
    pub fn read_counts(&mut self) -> Option<&[c_longlong]> {
        if !self.is_running {
            return None;
        }
        // SAFETY: the buffer has one element per event of the set.
        let code = unsafe { (self.papi.read)(self.handle, self.values.as_mut_ptr()) };
        (code == 0).then_some(&self.values)
    }

    pub fn stop_counting(&mut self) {
        if std::mem::take(&mut self.is_running) {
            // SAFETY: the set runs, and the buffer has one element per event.
            self.papi.with_functions(|papi| unsafe { (papi.stop)(self.handle, self.values.as_mut_ptr()) });
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        self.stop_counting();
        // SAFETY: the set is ours, on its own thread (it is not `Send`), and stopped.
        self.papi.with_functions(|papi| unsafe {
            (papi.cleanup_eventset)(self.handle);
            (papi.destroy_eventset)(&mut self.handle);
        });
    }
}

/// Exports the event `sde:::opcollect::NAME` to other PAPI tools; never freed, because PAPI may read it at any time.
pub fn export_number(name: &str) -> Result<&'static AtomicI64, PapiError> {
    let papi = open_library()?;
    let sde =
        papi.sde.as_ref().ok_or_else(|| plain_error(format!("no `{SDE_LIBRARY}`; install it (Debian: libsde1)")))?;
    type Init = unsafe extern "C" fn(*const c_char) -> *mut c_void;
    type Register = unsafe extern "C" fn(*mut c_void, *const c_char, c_int, c_int, *mut c_void) -> c_uint;
    let name = event_name(name)?;
    let number: &'static AtomicI64 = Box::leak(Box::default());
    // SAFETY: the types are those of the library's header; mode 0 is read-only and difference, type 0 a 64-bit
    // integer; the number is never freed, and an aligned 64-bit integer is read atomically.
    let code = unsafe {
        let missing = |error: libloading::Error| plain_error(format!("`{SDE_LIBRARY}`: {error}"));
        let init = sde.get::<Init>(b"papi_sde_init\0").map_err(missing)?;
        let register = sde.get::<Register>(b"papi_sde_register_counter\0").map_err(missing)?;
        register(init(c"opcollect".as_ptr()), name.as_ptr(), 0, 0, number.as_ptr().cast())
    };
    if code == 0 {
        Ok(number)
    } else {
        Err(plain_error(format!("`{SDE_LIBRARY}` cannot register {name:?}: error {code}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, EventSet, missing_component, open_library};

    #[allow(clippy::print_stderr)]
    fn skip() {
        eprintln!("SKIPPED: no PAPI on this machine");
    }

    #[test]
    fn a_misspelled_event_is_answered_with_the_nearest() {
        let Ok(papi) = open_library() else { return skip() };
        let hint = papi.nearest_event("PAPI_TOT_CYX").unwrap_or_default();
        assert!(hint.contains("`PAPI_TOT_CYC`"), "{hint}");
        assert_eq!(papi.nearest_event("no_such::EVENT_AT_ALL"), None);
    }

    #[test]
    fn threads_that_begin_and_end_together_do_not_disturb_each_other() {
        let Ok(papi) = open_library() else { return skip() };
        // Events that any PAPI can count, and names that it must search for.
        let events = ["PAPI_TOT_INS", "perf::TASK-CLOCK", "perf::PAGE-FAULTS", "perf::CONTEXT-SWITCHES", "no:::such"];
        let beside = || {
            for round in 0..2 {
                let mut sets: Vec<EventSet> = Vec::new();
                for event in events {
                    let Ok(component) = papi.component_of(event) else { continue };
                    let Ok(mut set) = EventSet::new(papi, component, round % 2 == 0) else { continue };
                    if set.add_event(event).and_then(|()| set.start_counting()).is_ok() {
                        sets.push(set);
                    }
                }
                for set in &mut sets {
                    assert!(set.read_counts().is_some_and(|counts| counts.iter().all(|count| *count >= 0)));
                }
            }
        };
        for _ in 0..400 {
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(beside))));
        }
    }

    #[test]
    fn an_event_is_missing_for_the_lack_of_its_own_component() {
        let component = |name: &str, disabled: Option<&str>| Component {
            name: name.to_owned(),
            disabled: disabled.map(str::to_owned),
        };
        let here = [component("perf_event", Some("no counters")), component("cuda", Some("libcupti.so not found"))];
        let lack = |event: &str| missing_component(event, &here).unwrap_or_default();
        assert_eq!(
            lack("cuda:::dram__bytes_read:stat=sum"),
            "PAPI's component cuda is disabled: libcupti.so not found"
        );
        assert_eq!(lack("nvml:::power"), "the PAPI library was built without the component nvml");
        assert_eq!(lack("PAPI_TOT_CYC"), "PAPI's component perf_event is disabled: no counters");
    }
}
