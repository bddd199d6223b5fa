//! Errors for users: what failed, where, what to do, and the exit code for scripts.

use std::fmt;
use std::path::Path;
use targets::Refusal;

/// An error that ends a command.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

/// The person who can fix the cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller, for wrong usage or input.
    Use,
    /// The administrator of the machine or the installation.
    Environment,
}

impl Kind {
    /// Returns the exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Use => 2,
            Kind::Environment => 3,
        }
    }
}

impl Failure {
    /// Creates an error for wrong usage or input.
    pub fn usage(error: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Use, message: error.to_string(), hint: None }
    }

    /// Creates an error for a problem of the machine or the installation.
    pub fn environment(error: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Environment, message: error.to_string(), hint: None }
    }

    /// Creates an error for a file or folder that cannot be used; `doing` is for example `write`.
    pub fn of_file(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
        let what = format!("cannot {doing} `{}`", path.display());
        move |error| Failure::environment(format!("{what}: {error}"))
    }

    /// Creates a failure from the reason why a target cannot be used.
    pub fn from_refusal(refusal: Refusal) -> Failure {
        let kind = if refusal.is_of_environment { Kind::Environment } else { Kind::Use };
        Failure { kind, message: refusal.message, hint: refusal.hint }
    }

    /// Adds a hint about what to do.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the message without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint about what to do.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let is_of_environment = failure.kind == Kind::Environment;
        Refusal { is_of_environment, message: failure.message, hint: failure.hint }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Formats an error with all its causes in one line.
pub fn format_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}
