CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE account (site TEXT, username TEXT, name TEXT, password TEXT, PRIMARY KEY (site, username));

CREATE TABLE sh_product (id INTEGER PRIMARY KEY, sku TEXT, name TEXT, brand TEXT, kind TEXT, shelf TEXT, colour TEXT,
  pieces INTEGER, price INTEGER, was INTEGER, stock INTEGER, material TEXT, weight INTEGER, height INTEGER,
  warranty INTEGER, country TEXT, added TEXT, text TEXT, picture TEXT);
CREATE TABLE sh_review (id INTEGER PRIMARY KEY, product_id INTEGER, author TEXT, stars INTEGER, title TEXT, body TEXT,
  posted TEXT, helpful INTEGER);
CREATE INDEX sh_review_product ON sh_review (product_id);
CREATE TABLE sh_cart (owner TEXT, product_id INTEGER, quantity INTEGER, PRIMARY KEY (owner, product_id));
CREATE TABLE sh_wish (owner TEXT, product_id INTEGER, PRIMARY KEY (owner, product_id));
CREATE TABLE sh_order (id INTEGER PRIMARY KEY, number TEXT, owner TEXT, placed TEXT, name TEXT, street TEXT, town TEXT,
  postcode TEXT, delivery TEXT, code TEXT, note TEXT, subtotal INTEGER, cost INTEGER, total INTEGER, status TEXT);
CREATE TABLE sh_line (order_id INTEGER, product_id INTEGER, name TEXT, quantity INTEGER, price INTEGER);
CREATE TABLE sh_letter (id INTEGER PRIMARY KEY, owner TEXT, topic TEXT, number TEXT, body TEXT, sent TEXT);

CREATE TABLE cl_user (id INTEGER PRIMARY KEY, username TEXT UNIQUE, name TEXT, town TEXT, joined TEXT, phone TEXT,
  rating INTEGER, hours INTEGER, about TEXT);
CREATE TABLE cl_ad (id INTEGER PRIMARY KEY, ref TEXT, title TEXT, category TEXT, kind TEXT, colour TEXT, price INTEGER,
  town TEXT, condition TEXT, brand TEXT, year INTEGER, handover TEXT, posted TEXT, seller_id INTEGER, views INTEGER,
  text TEXT, picture TEXT);
CREATE TABLE cl_comment (id INTEGER PRIMARY KEY, ad_id INTEGER, author_id INTEGER, posted TEXT, body TEXT);
CREATE INDEX cl_comment_ad ON cl_comment (ad_id);
CREATE TABLE cl_message (id INTEGER PRIMARY KEY, ad_id INTEGER, sender_id INTEGER, receiver_id INTEGER, subject TEXT,
  body TEXT, sent TEXT);
CREATE TABLE cl_saved (user_id INTEGER, ad_id INTEGER, PRIMARY KEY (user_id, ad_id));

CREATE TABLE fo_user (id INTEGER PRIMARY KEY, username TEXT UNIQUE, name TEXT, town TEXT, joined TEXT, about TEXT);
CREATE TABLE fo_board (id INTEGER PRIMARY KEY, slug TEXT UNIQUE, name TEXT, about TEXT, founded TEXT, keeper_id INTEGER,
  rule TEXT, members INTEGER);
CREATE TABLE fo_post (id INTEGER PRIMARY KEY, board_id INTEGER, author_id INTEGER, title TEXT, body TEXT, picture TEXT,
  posted TEXT, score INTEGER, pinned INTEGER);
CREATE TABLE fo_comment (id INTEGER PRIMARY KEY, post_id INTEGER, parent_id INTEGER, author_id INTEGER, posted TEXT,
  body TEXT, score INTEGER);
CREATE INDEX fo_comment_post ON fo_comment (post_id);
CREATE TABLE fo_vote (user_id INTEGER, target TEXT, target_id INTEGER, value INTEGER,
  PRIMARY KEY (user_id, target, target_id));
CREATE TABLE fo_member (user_id INTEGER, board_id INTEGER, PRIMARY KEY (user_id, board_id));
CREATE TABLE fo_message (id INTEGER PRIMARY KEY, sender_id INTEGER, receiver_id INTEGER, subject TEXT, body TEXT,
  sent TEXT);
