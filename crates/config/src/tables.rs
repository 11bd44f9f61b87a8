//! Tables of a file: single tables and lists of tables.

use std::path::Path;

use strowger_rules::nearest;
use toml::de::{DeTable, DeValue};

use super::reader::Reader;

/// All tables of a file, as written. [`document!`] generates the type.
pub(super) trait Document: Default {
    /// Returns all tables with their keys; first the keys above the first table.
    fn names() -> Vec<super::reader::TableName>;
    /// Reads a table of a known name, as the next table of its list or as the single table. `path` is its name in messages.
    fn read(&mut self, name: &str, path: &str, table: &DeTable<'_>, reader: &mut Reader);
    /// Makes each relative path start at this folder.
    fn resolve(&mut self, folder: &Path);
}

/// Reads all tables of a file.
pub(super) fn read<D: Document>(document: &DeTable<'_>, reader: &mut Reader) -> D {
    let mut tables = D::default();
    // The keys above the first table are read first; any other name at this level must be a table.
    let mut top = DeTable::new();
    let top_keys = reader.table_name("").map_or(&[][..], |top| top.keys);
    for (key, value) in document {
        let name = key.get_ref().as_ref();
        if top_keys.contains(&name) {
            top.insert(key.clone(), value.clone());
            continue;
        }
        let Some(known) = reader.table_name(name).copied() else {
            reader.unknown_table(name, key.span(), value.get_ref());
            continue;
        };
        // For example `listener = "udp:192.0.2.1:5060"` and `domain = ["example.org"]`.
        let short = nearest(name, top_keys.iter().copied());
        let short = short.map_or_else(String::new, |short| format!(", or {short} = and a list"));
        match value.get_ref() {
            DeValue::Array(items) if known.is_list => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{name}[{index}]");
                    match item.get_ref() {
                        DeValue::Table(table) => {
                            reader.note_place(&path, key.span(), item.span());
                            tables.read(name, &path, table, reader);
                        }
                        _ => {
                            reader.names.doubt(known.name);
                            let cure = format!("write each {} as a [[{name}]] table{short}", name.replace('_', " "));
                            reader.wrong_type(&path, item, "a table", cure);
                        }
                    }
                }
            }
            _ if known.is_list => {
                reader.names.doubt(known.name);
                let message = format!("{name} is not a list of tables");
                reader.error(key.span(), message, format!("write [[{name}]], in double brackets{short}"));
            }
            DeValue::Table(table) => tables.read(name, name, table, reader),
            _ => {
                let message = format!("{name} is not a table here");
                reader.error(key.span(), message, format!("write [{name}] on a line of its own, and its keys below"));
            }
        }
    }
    tables.read("", "", &top, reader);
    tables
}

/// Defines a [`Document`] from its sections, and the field of [`Config`](super::Config) for each list.
macro_rules! document {
    (
        top: $top:ident,
        lists { $($(#[$doc:meta])* $list:ident: $item:ident => $items:ident: $part:ident),+ $(,)? }
        tables { $($field:ident: $type:ident),+ $(,)? }
    ) => {
        /// Tables as written in the file, before they are assembled.
        #[derive(Default)]
        pub(super) struct Tables {
            pub(super) top: $top,
            $( pub(super) $list: Vec<$item>, )+
            $( pub(super) $field: $type, )+
        }

        impl $crate::tables::Document for Tables {
            fn names() -> Vec<$crate::reader::TableName> {
                use $crate::reader::TableName;
                vec![TableName::of::<$top>(false), $( TableName::of::<$item>(true), )+ $( TableName::of::<$type>(false) ),+]
            }

            fn read(
                &mut self,
                name: &str,
                path: &str,
                table: &toml::de::DeTable<'_>,
                reader: &mut $crate::reader::Reader,
            ) {
                use $crate::reader::Section;
                match name {
                    $top::NAME => self.top = reader.section(path, table),
                    $( $item::NAME => self.$list.push(reader.section(path, table)), )+
                    $( $type::NAME => self.$field = reader.section(path, table), )+
                    _ => {}
                }
            }

            fn resolve(&mut self, folder: &std::path::Path) {
                use $crate::reader::Section;
                self.top.resolve(folder);
                $( self.$list.iter_mut().for_each(|table| table.resolve(folder)); )+
                $( self.$field.resolve(folder); )+
            }
        }
    };
}
pub(super) use document;
