-- What is stored about all projections.
SELECT p.name, p.state::text FROM holdfast.projections AS p ORDER BY p.name
