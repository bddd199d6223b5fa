//! Enums whose variants are chosen by name: on the command line, in files and in Python.

use crate::names;

/// An enum whose values are selected by name on the command line or in a file.
pub trait Choice: Copy + 'static {
    /// All values, in the order of the help text.
    const ALL: &'static [Self];

    /// Returns the name of this value on the command line and in files.
    fn name(self) -> &'static str;

    /// Returns the description of this value in the help text.
    fn help(self) -> &'static str;

    /// Returns further accepted names of this value, which help texts omit.
    fn aliases(self) -> &'static [&'static str];

    /// Returns the value with this name or alias, or None if there is none.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name || choice.aliases().contains(&name))
    }

    /// Returns the hint for an unknown name: similar names, or all names.
    fn name_hint(name: &str) -> String {
        names::name_hint(name, Self::ALL.iter().map(|choice| choice.name()))
    }
}

/// Declares an enum that implements [`Choice`] and serde's traits. Aliases follow a name: `= "device" | "cuda"`.
#[macro_export]
macro_rules! choice {
    (
        $(#[$attribute:meta])*
        pub enum $Choice:ident {
            $(#[doc = $help:literal] $(#[$of_variant:meta])* $Variant:ident = $name:literal $(| $alias:literal)*,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $Choice {
            $(#[doc = $help] $(#[$of_variant])* #[serde(rename = $name $(, alias = $alias)*)] $Variant,)+
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

            fn aliases(self) -> &'static [&'static str] {
                match self {
                    $($Choice::$Variant => &[$($alias),*],)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Choice;

    choice! {
        /// A key.
        pub enum Key {
            /// The number of calls
            Count = "count",
            /// The time on a device
            DeviceTime = "device_time" | "cuda_time",
        }
    }

    #[test]
    fn names_and_aliases_are_understood() {
        assert_eq!(Key::from_name("count"), Some(Key::Count));
        assert_eq!(Key::from_name("cuda_time"), Some(Key::DeviceTime));
        assert_eq!(Key::from_name("time"), None);
        assert_eq!((Key::DeviceTime.name(), Key::DeviceTime.help()), ("device_time", "The time on a device"));
        assert_eq!(serde_json::from_str::<Key>("\"cuda_time\"").ok(), Some(Key::DeviceTime));
        assert_eq!(serde_json::to_string(&Key::DeviceTime).ok().as_deref(), Some("\"device_time\""));
    }
}
