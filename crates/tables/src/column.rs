//! The definition of a column, and the columns of nearly every kind.
//!
//! Printers fill the cells.

/// One column of a table, as in `columnDefinitions`.
///
/// Built-in kinds have constant columns. A custom resource's columns come from `additionalPrinterColumns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// The header of the column.
    pub name: &'a str,
    /// The OpenAPI type of the cells: `string`, `integer`, `boolean`, `number` or `date`.
    pub kind: &'a str,
    /// The OpenAPI format of the cells, or empty. `name` marks the object's name, which clients need.
    pub format: &'a str,
    /// A description for users.
    pub description: &'a str,
    /// 0 is always shown. Higher priorities are shown only in wide output (`-o wide`).
    pub priority: i32,
}

impl<'a> Column<'a> {
    /// A column of texts.
    pub const fn text(name: &'a str, description: &'a str) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0 }
    }

    /// A column of whole numbers.
    pub const fn integer(name: &'a str, description: &'a str) -> Self {
        Self { kind: "integer", ..Self::text(name, description) }
    }

    /// A column of booleans.
    pub const fn boolean(name: &'a str, description: &'a str) -> Self {
        Self { kind: "boolean", ..Self::text(name, description) }
    }

    /// A column of times.
    pub const fn date(name: &'a str, description: &'a str) -> Self {
        Self { kind: "date", ..Self::text(name, description) }
    }

    /// Returns the column for wide output only.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Returns the column marked as a name.
    pub const fn named(self) -> Self {
        Self { format: "name", ..self }
    }
}

/// The API documentation of `metadata.name`.
pub const NAME_DOC: &str = "\
    Name must be unique within a namespace. Is required when creating resources, although some resources may allow a \
    client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
    idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// The API documentation of `metadata.creationTimestamp`.
const CREATED_DOC: &str = "\
    CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed \
    to be set in happens-before order across separate operations. Clients may not set this value. It is represented \
    in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The object's name.
pub const NAME: Column<'_> = Column::text("Name", NAME_DOC).named();
/// The object's name in the few tables that do not mark it.
pub const UNMARKED_NAME: Column<'_> = Column::text("Name", NAME_DOC);
/// The object's age.
pub const AGE: Column<'_> = Column::text("Age", CREATED_DOC);
/// The object's creation time.
pub const CREATED_AT: Column<'_> = Column::date("Created At", CREATED_DOC);
/// The names of the containers in a pod template.
pub const CONTAINERS: Column<'_> = Column::text("Containers", "Names of each container in the template.");
/// The images of the containers in a pod template.
pub const IMAGES: Column<'_> = Column::text("Images", "Images referenced by each container in the template.");
