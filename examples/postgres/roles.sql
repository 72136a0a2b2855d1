-- Who may do what with the rows of a team. Run it once, as the role that is to own the tables, in a database for benchax:
--
--     psql postgresql://owner@server/benchax -f roles.sql
--     benchax migrate --store postgresql://owner@server/benchax
--
-- Writers add rows, programs, comparisons and names of baselines, and change or remove nothing, their own rows included.
-- Readers read. Give each machine or person a login in one of the two:
--
--     CREATE ROLE ci LOGIN PASSWORD '...' IN ROLE benchax_writer;

CREATE ROLE benchax_reader;
CREATE ROLE benchax_writer IN ROLE benchax_reader;

-- In PostgreSQL 14 and before, everybody may make tables in "public", and would own them.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO benchax_reader;

-- Tables that the role which runs this makes from now on, those of later versions of benchax too.
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO benchax_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT INSERT ON TABLES TO benchax_writer;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO benchax_writer;

-- Tables that are there already.
GRANT SELECT ON ALL TABLES IN SCHEMA public TO benchax_reader;
GRANT INSERT ON ALL TABLES IN SCHEMA public TO benchax_writer;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO benchax_writer;
