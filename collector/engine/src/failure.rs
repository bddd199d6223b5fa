//! Errors as a person reads them: what, where, what to do; and the exit code a script reads.

use std::fmt;
use targets::Refusal;

/// A command that could not be done.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The caller's: bad use or input.
    Use,
    /// The machine's or the installation's.
    Environment,
}

impl Kind {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Kind::Use => 2,
            Kind::Environment => 3,
        }
    }
}

impl Failure {
    /// Bad use or input.
    pub fn usage(error: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Use, message: error.to_string(), hint: None }
    }

    /// Something this machine or installation cannot do.
    pub fn environment(error: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Environment, message: error.to_string(), hint: None }
    }

    /// Why a target cannot be used.
    pub fn of_target(refusal: Refusal) -> Failure {
        let kind = if refusal.is_of_environment { Kind::Environment } else { Kind::Use };
        Failure { kind, message: refusal.message, hint: refusal.hint }
    }

    /// With what to do about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Which kind it is.
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

/// An error with all its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
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
