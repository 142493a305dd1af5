DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;
CREATE TABLE shop.goods (
  id int PRIMARY KEY, big bigint, small smallint, price numeric(10,2), free numeric, ratio real, weight double precision,
  name text, label varchar(20), ok boolean, made timestamp, made3 timestamp(3), seen timestamptz, day date, at time,
  data bytea, code uuid, doc json, docb jsonb, zoned timetz, tags text[], span interval
);
ALTER TABLE shop.goods REPLICA IDENTITY FULL;
INSERT INTO shop.goods VALUES (
  1, 9007199254740993, -7, 12345678.90, 0.000001, 0.5, 1e300, 'lamp ü', 'a', true, '2024-02-29 12:34:56.789012',
  '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012+02', '2024-02-29', '23:59:59.999999', '\x00ff10',
  '0190163d-8694-739b-aea5-966c26f8ad90', '{"a": [1, null]}', '{"b": "ü"}', '23:59:59.5+02', '{a,NULL}', '1 day 00:00:01'
);
-- From the log:
INSERT INTO shop.goods VALUES (
  2, -9223372036854775808, 32767, -0.01, -12345678901234567890.123, -1.25, -0.1, '', 'b', false,
  '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', '1900-01-01 00:00:00Z', '1900-01-01', '00:00:00', '',
  '00000000-0000-0000-0000-000000000000', '[]', 'null', '00:00:00Z', '{}', '-1 second'
);
INSERT INTO shop.goods (id) VALUES (3);
UPDATE shop.goods SET name = 'desk', price = 0, day = '9999-12-31' WHERE id = 1;
UPDATE shop.goods SET name = NULL, ok = NULL, made = NULL WHERE id = 1;
DELETE FROM shop.goods WHERE id = 2;
UPDATE shop.goods SET id = 4 WHERE id = 3;
