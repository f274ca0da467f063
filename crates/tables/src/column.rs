//! The definition of a column, and the columns that nearly every kind has.
//!
//! What stands in a cell is for the printer of the kind.

/// One column of a table, as `columnDefinitions` describes it.
///
/// Built-in kinds have constant columns; a custom resource makes them of its definition's `additionalPrinterColumns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// What stands at the head of the column.
    pub name: &'a str,
    /// The OpenAPI type of the cells: `string`, `integer`, `boolean`, `number` or `date`.
    pub kind: &'a str,
    /// The OpenAPI format of the cells. `name` marks the object's name, which clients need; empty if none.
    pub format: &'a str,
    /// What the column shows, for people.
    pub description: &'a str,
    /// 0 is always shown; a column with a higher number only where there is room (`-o wide`).
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

    /// A column of truth values.
    pub const fn boolean(name: &'a str, description: &'a str) -> Self {
        Self { kind: "boolean", ..Self::text(name, description) }
    }

    /// A column of points in time.
    pub const fn date(name: &'a str, description: &'a str) -> Self {
        Self { kind: "date", ..Self::text(name, description) }
    }

    /// The same column, shown only where there is room.
    pub const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// The same column, marked as holding a name.
    pub const fn named(self) -> Self {
        Self { format: "name", ..self }
    }
}

/// What the API documentation says of `metadata.name`.
pub const NAME_DOC: &str = "\
    Name must be unique within a namespace. Is required when creating resources, although some resources may allow a \
    client to request the generation of an appropriate name automatically. Name is primarily intended for creation \
    idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// What the API documentation says of `metadata.creationTimestamp`.
const CREATED_DOC: &str = "\
    CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed \
    to be set in happens-before order across separate operations. Clients may not set this value. It is represented \
    in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The object's name.
pub const NAME: Column<'_> = Column::text("Name", NAME_DOC).named();
/// The object's name in the few tables that do not mark it as one.
pub const UNMARKED_NAME: Column<'_> = Column::text("Name", NAME_DOC);
/// How long ago the object was created.
pub const AGE: Column<'_> = Column::text("Age", CREATED_DOC);
/// When the object was created.
pub const CREATED_AT: Column<'_> = Column::date("Created At", CREATED_DOC);
/// The names of the containers in a pod template.
pub const CONTAINERS: Column<'_> = Column::text("Containers", "Names of each container in the template.");
/// The images of the containers in a pod template.
pub const IMAGES: Column<'_> = Column::text("Images", "Images referenced by each container in the template.");
