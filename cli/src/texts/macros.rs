//! The macro that makes texts.

/// Makes one function per text from its two translations, and `ALL`, which lists them for tests.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),*) $zh:literal $en:literal;)+) => {
        $(
            $(#[$doc])*
            pub fn $name($($arg: impl ::std::fmt::Display),*) -> $crate::texts::Text {
                $crate::texts::Text::new(format!($zh), format!($en))
            }
        )+
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str, &str)] = &[$((stringify!($name), $zh, $en)),+];
    };
}

pub(super) use texts;
