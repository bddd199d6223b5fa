//! Errors as a person reads them: what, where, what to do; and the exit code a script reads.

use std::fmt;

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
