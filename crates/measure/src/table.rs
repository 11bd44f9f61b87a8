//! Common form of the tables of measures: an enumeration with a row of texts for each member.

/// Defines a table: the name of the enumeration and of its columns, then a row for each member. Each column becomes a
/// function.
macro_rules! table {
    (
        $(#[$about:meta])*
        $type:ident: $($(#[$of:meta])* $column:ident),+;
        $($name:ident = $($text:literal),+;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $type { $(#[doc = concat!($($text, "\n\n",)+)] $name,)* }

        const _: () = {
            #[allow(non_camel_case_types, reason = "a column is named as its function is")]
            enum Column { $($column),+ }
            const COLUMNS: usize = [$(stringify!($column)),+].len();
            const ROWS: &[[&str; COLUMNS]] = &[$([$($text),+]),*];

            impl $type {
                pub const ALL: &'static [Self] = &[$(Self::$name,)*];

                $(
                    $(#[$of])*
                    pub const fn $column(self) -> &'static str {
                        ROWS[self as usize][Column::$column as usize]
                    }
                )+
            }
        };
    };
}

pub(super) use table;
