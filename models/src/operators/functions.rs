//! A macro that declares elementwise functions as a table.

/// Declares an enum of elementwise functions, one row each: name in texts, accepted types, operations (also selections,
/// roots and divisions) and transcendental functions per element.
macro_rules! functions {
    ($(#[$attribute:meta])* pub enum $functions:ident {
        $($(#[$doc:meta])* $function:ident $({ $($field:ident: $ty:ty),* })?
            => $name:literal, $takes:ident, $flops:literal, $exps:literal;)*
    }) => {
        $(#[$attribute])*
        pub enum $functions {
            $($(#[$doc])* $function $({ $($field: $ty),* })?,)*
        }

        impl $functions {
            /// Returns the function's name in texts.
            pub fn name(self) -> &'static str {
                match self {
                    $($functions::$function { .. } => $name,)*
                }
            }

            fn check(self, x: &TensorType) -> Rule<TensorType> {
                match self {
                    $($functions::$function { .. } => $takes(x),)*
                }
            }

            fn work(self, output: &TensorType) -> Result<Work> {
                let (flops, exps) = match self {
                    $($functions::$function { .. } => ($flops, $exps),)*
                };
                Ok(Work { exps: elements(output)?.saturating_mul(exps), ..pointwise(output, flops)? })
            }
        }
    };
}

pub(super) use functions;
