//! Enums whose variants are chosen by name: on the command line, in files and in Python.

/// A value that is one of a few with names.
pub trait Choice: Copy + 'static {
    /// All values, in the order in which help texts list them.
    const ALL: &'static [Self];

    /// Returns the name on the command line and in files.
    fn name(self) -> &'static str;

    /// Returns the line that help texts show.
    fn help(self) -> &'static str;

    /// Returns the value of a name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// Declares an enum with the name and the help line of each variant, and implements [`Choice`] and serde's traits by name.
#[macro_export]
macro_rules! choice {
    (
        $(#[$attribute:meta])*
        pub enum $Choice:ident {
            $(#[doc = $help:literal] $(#[$of_variant:meta])* $Variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $Choice {
            $(#[doc = $help] $(#[$of_variant])* #[serde(rename = $name)] $Variant,)+
        }

        impl $crate::Choice for $Choice {
            const ALL: &'static [$Choice] = &[$($Choice::$Variant),+];

            fn name(self) -> &'static str {
                match self {
                    $($Choice::$Variant => $name,)+
                }
            }

            fn help(self) -> &'static str {
                match self {
                    $($Choice::$Variant => $help.trim(),)+
                }
            }
        }
    };
}
